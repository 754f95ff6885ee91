from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgeopt.cli.quickstart.digits import Digits, load_digits, split
from edgeopt.cli.quickstart.network import lowest_loss
from edgeopt_runtime import TrainingSession


@pytest.fixture(scope="module")
def digits() -> Digits:
    return load_digits()


def test_five_thousand_digits_are_there(digits: Digits) -> None:
    assert digits.images.shape == (5000, 1, 28, 28)
    assert digits.images.dtype == np.float32
    assert digits.images.min() == 0.0
    assert digits.images.max() == 1.0
    np.testing.assert_array_equal(np.bincount(digits.labels), np.full(10, 500))


def test_held_out_digits_are_not_trained_on(digits: Digits) -> None:
    # Numbers in place of the images, to follow each sample.
    numbered = Digits(np.arange(5000, dtype=np.float32), digits.labels)
    train, test = split(numbered, 100, seed=0)
    np.testing.assert_array_equal(np.bincount(test.labels), np.full(10, 100))
    assert set(train.images).isdisjoint(test.images)
    assert len(train.images) + len(test.images) == 5000
    again = split(numbered, 100, seed=0)[1]
    np.testing.assert_array_equal(again.images, test.images)


def test_the_quickstart_reaches_97_percent_on_held_out_digits(run: Any, digits: Digits, tmp_path: Path) -> None:
    result = run("quickstart", "--out", tmp_path / "quickstart")
    assert result.code == 0
    folder = tmp_path / "quickstart"
    assert {path.name for path in folder.iterdir()} == {"digits.edgeopt", "digits-trained.edgeopt", "loss.png"}

    _, test = split(digits, 100, seed=0)
    metrics = TrainingSession.load(folder / "digits-trained.edgeopt").evaluate((test.images, test.labels))
    assert metrics["accuracy"] >= 0.97
    assert f"test accuracy {metrics['accuracy']:.1%} on the 1000 held-out digits" in result.out

    picture = (folder / "loss.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", picture[16:24])
    assert (width, height) == (960, 540)


def test_no_loss_is_below_the_line_in_the_picture() -> None:
    """Against PyTorch, with the best logits there are: those that give the smoothed labels themselves."""
    labels = torch.arange(10)
    smoothed = torch.full((10, 10), 0.01).double() + 0.9 * torch.eye(10).double()
    loss = torch.nn.functional.cross_entropy(smoothed.log(), labels, label_smoothing=0.1)
    assert lowest_loss() == pytest.approx(loss.item(), rel=1e-12)
    assert round(lowest_loss(), 2) == 0.50


def test_what_is_missing_is_said_before_anything_is_done(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mlxtend" else find(name))
    result = run("quickstart", "--out", tmp_path / "quickstart")
    assert result.code == 1
    assert 'The quickstart needs mlxtend: pip install "edgeopt[quickstart]".' in result
    assert not (tmp_path / "quickstart").exists()
