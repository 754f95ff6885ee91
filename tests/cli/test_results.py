"""Metrics that are arrays, on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, f1_score

from edgeopt.cli.console import out
from edgeopt.cli.results import print_results
from edgeopt_runtime import TrainingSession


@pytest.fixture
def with_metrics(run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.syspath_prepend(str(folder))
    metrics = ("f1:average=none,label=f1_of_each", "confusion_matrix", "top_k:k=2", "acc", "auroc:thresholds=50")
    options = [part for metric in metrics for part in ("--metric", metric)]
    done = run("export", "model:build", "--loss", "cross_entropy", *options, "--out", "metrics.edgeopt")
    assert done.code == 0, done
    return "metrics.edgeopt"


def test_arrays_are_tables_and_lists(run: Any, with_metrics: str, folder: Path) -> None:
    with np.load(folder / "test.npz") as file:
        points, labels = file["input"], file["target"]
    predicted = np.asarray(TrainingSession.load(with_metrics).predict(points)).argmax(1)
    matrix = confusion_matrix(labels, predicted)
    result = run("evaluate", with_metrics, "--data", folder / "test.npz", "--batch-size", 7, "--json")
    found = json.loads(result.out)
    assert found["confusion_matrix"] == matrix.tolist()
    assert found["f1_of_each"] == pytest.approx(f1_score(labels, predicted, average=None))
    assert set(found) == {"loss", "f1_of_each", "confusion_matrix", "top_2_accuracy", "accuracy", "auroc"}
    table = run("evaluate", with_metrics, "--data", folder / "test.npz")
    assert "label \\ predicted 0 1 2" in table
    for row, counts in enumerate(matrix):
        assert f"{row} {' '.join(str(count) for count in counts)}" in table
    assert f"accuracy {np.mean(predicted == labels):.4g}" in table


def test_training_goes_on_beside_them(run: Any, with_metrics: str, folder: Path) -> None:
    data = ("--data", folder / "train.npz", "--validation", folder / "test.npz", "--out", "trained.edgeopt")
    table = run("train", with_metrics, *data)
    assert table.code == 0
    assert "val accuracy" in table
    line = json.loads(run("train", with_metrics, *data, "--json").out.splitlines()[0])
    assert np.shape(line["metrics"]["evaluate.confusion_matrix"]) == (3, 3)


def test_large_arrays_are_shortened(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "_width", 120)
    matrix = np.diag(np.full(40, 9.0))
    matrix[3, 17] = 6.0
    print_results(
        out, {"loss": 0.5, "confusion_matrix": matrix, "each": np.arange(70.0) / 70, "cube": np.ones((2,) * 3)}
    )
    text = " ".join(capsys.readouterr().out.split())
    assert "confusion_matrix, 40 x 40: what is confused most" in text
    assert "label predicted value" in text
    assert " 3 17 6 " in text
    assert "the first 50 of 70; --json prints all" in text
    assert "cube, 2 x 2 x 2: the largest elements" in text
