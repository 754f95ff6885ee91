"""Figures of merit that are reported beside the loss and never differentiated."""

from __future__ import annotations

from edgeopt.metrics.accuracy import Accuracy
from edgeopt.metrics.base import MeanMetric, Metric
from edgeopt.metrics.registry import METRIC, METRICS

__all__ = ["METRIC", "METRICS", "Accuracy", "MeanMetric", "Metric"]
