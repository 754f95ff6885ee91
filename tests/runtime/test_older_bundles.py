"""A bundle of schema version 1 does what it did when it was written, and becomes one of now when it is saved."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeopt_runtime import TrainingSession, read_bundle
from edgeopt_runtime.manifest import SCHEMA_VERSION

DATA = Path(__file__).parent / "data"
PACKED = gzip.decompress((DATA / "version1.edgeopt.gz").read_bytes())
THEN: dict[str, Any] = json.loads((DATA / "version1.json").read_text())
X, Y = np.array(THEN["x"], np.float32), np.array(THEN["y"])
PARTS = [(X[begin:end], Y[begin:end]) for begin, end in ((0, 4), (4, 9), (9, 12))]


def close(now: Any, then: Any, tolerance: float = 2e-6) -> None:
    """The same names, and numbers that differ by what another ONNX Runtime or machine may round differently."""
    if isinstance(then, dict):
        assert now.keys() == then.keys()
        now, then = list(now.values()), list(then.values())
    np.testing.assert_allclose(now, then, rtol=tolerance, atol=tolerance)


def train(session: TrainingSession) -> None:
    close(session.evaluate(PARTS), THEN["evaluate_before"])
    for part, then in zip(PARTS, THEN["steps"], strict=True):
        close(session.step(part), then)
    for part, then in zip(PARTS[:2], THEN["accumulate"], strict=True):
        close(session.accumulate(part), then)
    close(session.apply(), THEN["apply"])
    close(session.evaluate(PARTS), THEN["evaluate_after"])
    close(session.predict(X), THEN["predict"])


def manifest_of(path: Path) -> Any:
    return json.loads((path / "manifest.json").read_text())


def test_it_is_of_version_1() -> None:
    assert b'"schema_version": 1' in PACKED
    assert "summary" not in read_bundle(PACKED).manifest.signatures


def test_it_trains_and_minimises_as_it_did() -> None:
    session = TrainingSession.load(PACKED)
    train(session)
    # Some iterations make more of a last bit.
    close(session.minimize([(X, Y)], "lbfgs", max_iter=5).loss, THEN["minimize"]["loss"], 1e-4)
    close(session.evaluate(PARTS), THEN["evaluate_minimized"], 1e-4)


def test_it_goes_on_after_it_was_saved_in_the_version_of_now(tmp_path: Path) -> None:
    session = TrainingSession.load(PACKED)
    session.save(tmp_path / "fresh")
    assert manifest_of(tmp_path / "fresh")["schema_version"] == SCHEMA_VERSION > 1
    train(TrainingSession.load(tmp_path / "fresh"))
    train(session)
    session.save(tmp_path / "trained.edgeopt")
    again = TrainingSession.load(tmp_path / "trained.edgeopt")
    assert session.evaluate(PARTS) == again.evaluate(PARTS)
    assert session.step(PARTS[0]) == again.step(PARTS[0])
    for name, array in session.state().items():
        np.testing.assert_array_equal(again.state()[name], array)


def test_it_takes_another_optimizer(tmp_path: Path) -> None:
    edgeopt = pytest.importorskip("edgeopt.optimizers")
    bundle = pytest.importorskip("edgeopt.bundle").Bundle.load(PACKED)
    session = bundle.with_optimizer(edgeopt.SGD(0.5)).bundle.session()
    before = session.evaluate(PARTS)
    close(before, THEN["evaluate_before"])
    for _ in range(20):
        session.step((X, Y))
    assert session.evaluate(PARTS)["loss"] < 0.8 * before["loss"]
    session.save(tmp_path / "other")
    assert TrainingSession.load(tmp_path / "other").evaluate(PARTS) == session.evaluate(PARTS)
