"""Figures of merit that are reported beside the loss and never differentiated."""

from __future__ import annotations

from edgeopt.losses import ArraySpec
from edgeopt.metrics.accuracy import Accuracy, TopKAccuracy
from edgeopt.metrics.base import MeanMetric, Metric
from edgeopt.metrics.classes import ClassMetric
from edgeopt.metrics.confusion import ConfusionMatrix
from edgeopt.metrics.curves import AUROC, AveragePrecision, CurveMetric
from edgeopt.metrics.function import FunctionMetric, from_function
from edgeopt.metrics.likelihood import Perplexity
from edgeopt.metrics.numerics import count, wide
from edgeopt.metrics.overlap import F1, IoU, OverlapMetric, Precision, Recall
from edgeopt.metrics.registry import METRIC, METRICS
from edgeopt.metrics.regression import MAE, MSE, R2, RMSE, CosineSimilarity, NumberMetric

__all__ = [
    "AUROC",
    "F1",
    "MAE",
    "METRIC",
    "METRICS",
    "MSE",
    "R2",
    "RMSE",
    "Accuracy",
    "ArraySpec",
    "AveragePrecision",
    "ClassMetric",
    "ConfusionMatrix",
    "CosineSimilarity",
    "CurveMetric",
    "FunctionMetric",
    "IoU",
    "MeanMetric",
    "Metric",
    "NumberMetric",
    "OverlapMetric",
    "Perplexity",
    "Precision",
    "Recall",
    "TopKAccuracy",
    "count",
    "from_function",
    "wide",
]
