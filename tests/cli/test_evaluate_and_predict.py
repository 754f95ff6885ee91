from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeopt_runtime import TrainingSession


def test_metrics_are_those_of_the_session(run: Any, bundle: Path, folder: Path) -> None:
    with np.load(folder / "test.npz") as file:
        expected = TrainingSession.load(bundle).evaluate((file["input"], file["target"]))
    result = run("evaluate", bundle, "--data", folder / "test.npz", "--batch-size", 7, "--json")
    assert json.loads(result.out) == pytest.approx(expected, rel=1e-6)
    table = run("evaluate", bundle, "--data", folder / "test.npz")
    assert f"accuracy {expected['accuracy']:.4g}" in table


def test_predictions_need_no_targets_and_keep_the_order(run: Any, bundle: Path, folder: Path) -> None:
    with np.load(folder / "test.npz") as file:
        points = file["input"]
    np.savez("points.npz", input=points)
    result = run("predict", bundle, "--data", "points.npz", "--batch-size", 16, "--out", "predictions.npz")
    assert result.code == 0
    session = TrainingSession.load(bundle)
    name = session.manifest.outputs[0].name
    assert f"wrote predictions.npz: {name} float32[50, 3]" in result.out
    with np.load("predictions.npz") as file:
        assert file.files == [name]
        np.testing.assert_allclose(file[name], np.asarray(session.predict(points)), rtol=1e-6, atol=1e-6)


def test_data_of_another_dtype_is_refused_by_name(run: Any, bundle: Path) -> None:
    np.savez("points.npz", input=np.zeros((4, 4), np.complex64))
    result = run("predict", bundle, "--data", "points.npz", "--out", "predictions.npz")
    assert result.code == 1
    assert "BatchError E110" in result
    assert "`input`" in result
