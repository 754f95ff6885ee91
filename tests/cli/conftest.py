"""A way to run commands in this process, and a small bundle with data it can learn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from edgeopt.cli.app import run as run_app
from edgeopt.cli.console import err, out

MODEL = """
import torch


def build():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    return model, torch.zeros(2, 4)


def only_the_model():
    return build()[0]
"""


class Result(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    def __contains__(self, words: object) -> bool:
        """Whether words occur in the output, wherever lines and boxes of the terminal break it."""
        text = " ".join((self.out + self.err).replace("│", " ").split())
        return isinstance(words, str) and words in text


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    for console in (out, err):
        monkeypatch.setattr(console, "_width", 160)

    def run_command(*arguments: object) -> Result:
        capsys.readouterr()
        try:
            code = run_app([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Result(code, *capsys.readouterr())

    return run_command


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds model.py, train.npz and test.npz: three clusters in four dimensions."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "model.py").write_text(MODEL, encoding="utf-8")
    rng = np.random.default_rng(0)
    centres = 4.0 * rng.standard_normal((3, 4))
    labels = rng.integers(0, 3, 200)
    points = (centres[labels] + rng.standard_normal((200, 4))).astype(np.float32)
    np.savez(folder / "train.npz", input=points[:150], target=labels[:150], unused=np.zeros(3))
    np.savez(folder / "test.npz", input=points[150:], target=labels[150:])
    return folder


@pytest.fixture(scope="session")
def bundle(folder: Path) -> Path:
    """The model of model.py, ready to train."""
    names: dict[str, Any] = {}
    exec(MODEL, names)
    import edgeopt

    path = folder / "model.edgeopt"
    edgeopt.export(
        *names["build"](),
        loss=edgeopt.losses.CrossEntropy(),
        optimizer=edgeopt.optimizers.SGD(lr=0.1),
        metrics=[edgeopt.metrics.Accuracy()],
    ).save(path)
    return path
