from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeopt_runtime import TrainingSession


def test_training_learns_and_is_saved(run: Any, bundle: Path, folder: Path) -> None:
    data = ("--data", folder / "train.npz", "--validation", folder / "test.npz")
    result = run("train", bundle, *data, "--epochs", 15, "--out", "trained.edgeopt")
    assert result.code == 0
    assert "trained on 150 samples, 15 epochs; saved to trained.edgeopt" in result.out
    assert "15/15 " in result.err
    assert "val accuracy" in result.err
    trained, fresh = TrainingSession.load("trained.edgeopt"), TrainingSession.load(bundle)
    assert trained.state()["optimizer.step"] == 15 * 5
    assert fresh.state()["optimizer.step"] == 0
    evaluated = run("evaluate", "trained.edgeopt", "--data", folder / "test.npz", "--json")
    assert json.loads(evaluated.out)["accuracy"] > 0.9


def test_training_equals_the_loop_by_hand(run: Any, bundle: Path, folder: Path) -> None:
    data = ("--data", folder / "train.npz", "--batch-size", 40, "--seed", 3)
    assert run("train", bundle, *data, "--hyper", "lr=0.05", "--threads", 1, "--out", "trained.edgeopt").code == 0
    session = TrainingSession.load(bundle, threads=1)
    session.set_hyper(lr=0.05)
    with np.load(folder / "train.npz") as file:
        points, labels = file["input"], file["target"]
    order = np.random.default_rng(3).permutation(150)
    for start in range(0, 150, 40):
        session.step((points[order[start : start + 40]], labels[order[start : start + 40]]))
    trained = TrainingSession.load("trained.edgeopt")
    assert trained.hyperparameters["schedule.lr"] == 0.05
    for name, array in session.state().items():
        np.testing.assert_array_equal(trained.state()[name], array)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hyper", "speed=1"], "HyperparameterError E140"),
        (["--hyper", "lr"], "'lr' sets no hyperparameter; write name=value"),
        (["--provider", "AbacusExecutionProvider"], "ProviderError E130"),
    ],
)
def test_options_that_cannot_be_met_are_errors(
    run: Any, bundle: Path, folder: Path, options: list[str], message: str
) -> None:
    result = run("train", bundle, "--data", folder / "train.npz", "--out", "x.edgeopt", *options)
    assert result.code == 1
    assert message in result
    assert not Path("x.edgeopt").exists()


def test_a_loss_that_is_not_finite_stops_or_is_skipped(run: Any, bundle: Path, folder: Path) -> None:
    with np.load(folder / "train.npz") as file:
        points, labels = file["input"], file["target"]
    points[0] = np.nan
    np.savez("bad.npz", input=points, target=labels)
    stopped = run("train", bundle, "--data", "bad.npz", "--out", "x.edgeopt")
    assert stopped.code == 1
    assert "NonFiniteLossError E120" in stopped
    skipped = run("train", bundle, "--data", "bad.npz", "--out", "x.edgeopt", "--on-nonfinite", "skip")
    assert skipped.code == 0
    assert TrainingSession.load("x.edgeopt").state()["optimizer.step"] == 4
