"""Metrics of one's own: functions, other outputs than the loss reads, and targets that no loss has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.losses import ArraySpec, CrossEntropy
from edgeopt.metrics import MAE, Accuracy, CosineSimilarity, Metric, from_function
from edgeopt.optimizers import SGD
from edgeopt_runtime.errors import BatchError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(10, 4)).astype(np.float32)
LABELS = RNG.integers(0, 3, 10)
DEPTH = RNG.normal(size=(10, 2)).astype(np.float32)


class TwoHeads(nn.Module):
    """Logits, and a vector that no loss reads."""

    def __init__(self) -> None:
        super().__init__()
        self.classes, self.vector = nn.Linear(4, 3), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Both."""
        return {"logits": self.classes(x), "vector": self.vector(x)}


def export(*metrics: Metric, loss: Any = None) -> edgeopt.Bundle:
    torch.manual_seed(0)
    return edgeopt.export(
        TwoHeads(),
        torch.zeros(2, 4),
        loss=loss or CrossEntropy(output="logits"),
        optimizer=SGD(0.1),
        metrics=metrics,
        verbose=False,
        check=False,
    )


def outputs() -> dict[str, Any]:
    torch.manual_seed(0)
    return {name: value.detach().numpy() for name, value in TwoHeads()(torch.from_numpy(X)).items()}


def test_a_target_of_its_own_is_asked_for_in_evaluation_only() -> None:
    metrics = [MAE(output="vector", target="depth"), CosineSimilarity(output="vector", target="depth"), Accuracy()]
    bundle = export(*metrics)
    assert [(spec.name, spec.kind) for spec in bundle.manifest.inputs] == [
        ("x", "model"),
        ("target", "loss"),
        ("depth", "metric"),
    ]
    assert any("Only evaluation reports mae and cosine_similarity" in each.text for each in bundle.decisions)
    session: Any = bundle.session()
    batch: dict[str, Any] = {"x": X, "target": LABELS, "depth": DEPTH}
    found = session.evaluate([{name: value[:3] for name, value in batch.items()}, [X[3:], LABELS[3:], DEPTH[3:]]])
    assert found["mae"] == pytest.approx(np.abs(outputs()["vector"] - DEPTH).mean(), rel=1e-6)
    with pytest.raises(BatchError, match="depth"):
        session.evaluate((X, LABELS))
    for step in (session.step((X, LABELS)), session.step(batch), session.accumulate((X, LABELS))):
        assert {"mae", "cosine_similarity"}.isdisjoint(step)
        assert "accuracy" in step
    session.apply()
    assert session.minimize([(X[:3], LABELS[:3]), (X[3:], LABELS[3:])], max_iter=3).loss > 0.0
    history = session.fit([(X, LABELS)], evaluate_on=[batch], progress=False)
    assert "evaluate.mae" in history.epochs[-1]


def test_it_survives_a_file_and_another_optimizer(tmp_path: Any) -> None:
    bundle = export(MAE(output="vector", target="depth"))
    bundle.save(tmp_path / "b.edgeopt")
    loaded = edgeopt.Bundle.load(tmp_path / "b.edgeopt")
    other = loaded.with_optimizer("adamw:lr=0.1").bundle
    assert other.session().evaluate((X, LABELS, DEPTH)) == bundle.session().evaluate((X, LABELS, DEPTH))


def test_two_metrics_of_one_name_must_want_the_same() -> None:
    with pytest.raises(SignatureError, match=r"MAE wants the batch input 'y' as float32 .* Accuracy as int64"):
        export(MAE(output="vector", target="y"), Accuracy(output="vector", target="y"))
    with pytest.raises(SignatureError, match="has the name of a model input"):
        export(MAE(output="vector", target="x"))
    with pytest.raises(SignatureError, match="reads the output 'nowhere'"):
        export(MAE(output="nowhere", target="y"))


def spread(xp: Any, logits: Any, labels: Any) -> Any:
    """How far the logits of each sample are apart."""
    return xp.max(logits, axis=1) - xp.min(logits, axis=1)


def moments(xp: Any, vector: Any, depth: Any) -> dict[str, Any]:
    """Sums of powers of the errors."""
    error = vector - depth
    count = xp.sum(xp.ones_like(error))
    return {"one": xp.sum(error), "two": xp.sum(error * error), "count": count}


def bias_and_spread(xp: Any, sums: Any) -> dict[str, Any]:
    """Mean and deviation."""
    mean = sums["one"] / sums["count"]
    return {"bias": mean, "deviation": xp.sqrt(sums["two"] / sums["count"] - mean * mean)}


def test_functions() -> None:
    depth = (ArraySpec("depth", "float32", ("batch", 2)),)
    bundle = export(
        from_function(spread),
        from_function(lambda xp, logits, labels: (xp.sum(logits), xp.sum(xp.ones_like(logits))), label="mean_logit"),
        from_function(moments, value=bias_and_spread, output="vector", targets=depth, label="error"),
    )
    session: Any = bundle.session()
    batches = [(X[:1], LABELS[:1], DEPTH[:1]), (X[1:], LABELS[1:], DEPTH[1:])]
    found = session.evaluate(batches)
    logits, error = outputs()["logits"], outputs()["vector"] - DEPTH
    assert found["spread"] == pytest.approx(np.ptp(logits, axis=1).mean(), rel=1e-6)
    assert found["mean_logit"] == pytest.approx(logits.mean(), rel=1e-6)
    assert found["error.bias"] == pytest.approx(error.mean(), rel=1e-5)
    assert found["error.deviation"] == pytest.approx(error.std(), rel=1e-5)
    assert session.step((X, LABELS))["spread"] == pytest.approx(found["spread"], rel=1e-6)


def test_what_is_no_metric_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="needs a name"):
        from_function(lambda xp, x, y: x)
    with pytest.raises(ConfigurationError, match="must be a function"):
        from_function(3, label="three")  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(ConfigurationError, match=r"value=\.\.\."):
        export(from_function(moments, output="vector", label="error"), loss=None)
    counting = from_function(lambda xp, x, y: (xp.sum(y), xp.sum(y)), label="whole_numbers")
    with pytest.raises(SignatureError, match="floating-point"):
        export(counting)
