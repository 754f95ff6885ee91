"""Every metric by name. The contract tests run over this table."""

from __future__ import annotations

from edgeopt.components import Kind
from edgeopt.metrics.accuracy import Accuracy
from edgeopt.metrics.base import Metric

__all__ = ["METRIC", "METRICS"]

METRICS: dict[str, type[Metric]] = {
    "accuracy": Accuracy,
}

METRIC = Kind(
    name="metric",
    base=Metric,  # type: ignore[type-abstract]  # only instances of it are made
    registry=METRICS,
    example="edgeopt.metrics.Accuracy()",
    aliases={"acc": "accuracy"},
)
