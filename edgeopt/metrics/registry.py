"""Every metric by name. The contract tests run over this table."""

from __future__ import annotations

from edgeopt.metrics.accuracy import Accuracy
from edgeopt.metrics.base import Metric

__all__ = ["METRICS"]

METRICS: dict[str, type[Metric]] = {
    "accuracy": Accuracy,
}
