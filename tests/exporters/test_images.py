"""Pictures as bytes: what the graphs make of them is what the model gets in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.images import IMAGENET_MEAN, IMAGENET_STD
from edgeopt_runtime import BatchError

PICTURES = np.random.default_rng(0).integers(0, 256, (6, 8, 10, 3), np.uint8)
LABELS = np.asarray([0, 1, 2, 0, 1, 2])


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 8, 3))


def normalised(pictures: Any) -> torch.Tensor:
    """What torchvision's `ToTensor` and `Normalize` make of a batch."""
    tensor = torch.from_numpy(pictures).permute(0, 3, 1, 2).to(torch.float32) / 255
    mean, std = (torch.tensor(each).reshape(1, 3, 1, 1) for each in (IMAGENET_MEAN, IMAGENET_STD))
    return (tensor - mean) / std


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_training_is_that_on_normalised_pictures(layout: Any) -> None:
    module = model()
    images = edgeopt.Images(IMAGENET_MEAN, IMAGENET_STD, layout)
    bundle = edgeopt.export(
        module, torch.randn(2, 3, 8, 10), loss="cross_entropy", optimizer="sgd:lr=0.1", images=images, verbose=False
    )
    session = bundle.session()
    pictures = PICTURES if layout == "NHWC" else np.ascontiguousarray(PICTURES.transpose(0, 3, 1, 2))
    (spec, _) = bundle.manifest.inputs
    assert (spec.dtype, spec.shape[1:]) == ("uint8", pictures.shape[1:])
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(3):
        loss = nn.functional.cross_entropy(module(normalised(PICTURES)), torch.from_numpy(LABELS))
        assert session.step((pictures, LABELS))["loss"] == pytest.approx(loss.item(), rel=1e-4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    module.eval()
    with torch.no_grad():
        expected = module(normalised(PICTURES)).numpy()
    np.testing.assert_allclose(np.asarray(session.predict(pictures)), expected, rtol=1e-3, atol=1e-4)
    with pytest.raises(BatchError, match="must be uint8"):
        session.predict(pictures.astype(np.float32) / 255)


def test_adapters_and_a_merged_model_take_bytes_too(tmp_path: Any) -> None:
    module = model().eval()
    bundle = edgeopt.export(
        module, torch.randn(2, 3, 8, 10), loss="cross_entropy", optimizer="sgd:lr=0.1", verbose=False,
        images=edgeopt.Images(IMAGENET_MEAN, IMAGENET_STD, "NHWC"), adapters=edgeopt.adapters.LoRA(2, targets="0"),
    )  # fmt: skip
    session = bundle.session()
    session.step((PICTURES, LABELS))
    session.export_inference(tmp_path / "merged.onnx")
    import onnxruntime

    merged = onnxruntime.InferenceSession(tmp_path / "merged.onnx")
    (found,) = merged.run(None, {merged.get_inputs()[0].name: PICTURES})
    np.testing.assert_allclose(found, np.asarray(session.predict(PICTURES)), rtol=1e-4, atol=1e-5)


def test_a_file_takes_bytes() -> None:
    weights = ", ".join(str(0.01 * value) for value in range(48))
    file = onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 17]>
    f (float[n, 3, 4, 4] x) => (float[n, 1] y) <float[48, 1] w = {{{weights}}}> {{
        flat = Flatten(x)
        y = MatMul(flat, w)
    }}
    """)
    settings: dict[str, Any] = {"loss": "mse", "optimizer": "sgd:lr=0.1", "verbose": False}
    plain = edgeopt.export(file, **settings).session()
    narrow = edgeopt.export(file, images=edgeopt.Images(0.5, 0.25), **settings).session()
    pictures = PICTURES[:2, :4, :4].transpose(0, 3, 1, 2).copy()
    expected = np.asarray(plain.predict(((pictures / 255 - 0.5) / 0.25).astype(np.float32)))
    np.testing.assert_allclose(np.asarray(narrow.predict(pictures)), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("images", "why"),
    [
        (edgeopt.Images((0.5, 0.5)), "has 3 channels, but mean has 2 numbers"),
        (edgeopt.Images(input="nowhere"), "Images are for the input 'nowhere'"),
    ],
)
def test_what_does_not_fit_is_refused(images: edgeopt.Images, why: str) -> None:
    with pytest.raises(SignatureError, match=why):
        edgeopt.export(
            model(),
            torch.randn(2, 3, 8, 10),
            loss="cross_entropy",
            optimizer="sgd:lr=0.1",
            images=images,
            verbose=False,
        )


@pytest.mark.parametrize("settings", [{"std": 0.0}, {"layout": "HWC"}, {"mean": (0.1, 0.2), "std": (1.0, 1.0, 1.0)}])
def test_settings_without_a_meaning_are_refused(settings: Any) -> None:
    with pytest.raises(ConfigurationError):
        edgeopt.Images(**settings)
