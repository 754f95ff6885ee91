"""Every metric by name. The contract tests run over this table."""

from __future__ import annotations

from edgeopt.components import Kind
from edgeopt.metrics.accuracy import Accuracy, TopKAccuracy
from edgeopt.metrics.base import Metric
from edgeopt.metrics.confusion import ConfusionMatrix
from edgeopt.metrics.curves import AUROC, AveragePrecision
from edgeopt.metrics.likelihood import Perplexity
from edgeopt.metrics.overlap import F1, IoU, Precision, Recall
from edgeopt.metrics.regression import MAE, MSE, R2, RMSE, CosineSimilarity

__all__ = ["METRIC", "METRICS"]

METRICS: dict[str, type[Metric]] = {
    "accuracy": Accuracy,
    "auroc": AUROC,
    "average_precision": AveragePrecision,
    "confusion_matrix": ConfusionMatrix,
    "cosine_similarity": CosineSimilarity,
    "f1": F1,
    "iou": IoU,
    "mae": MAE,
    "mse": MSE,
    "perplexity": Perplexity,
    "precision": Precision,
    "r2": R2,
    "recall": Recall,
    "rmse": RMSE,
    "top_k_accuracy": TopKAccuracy,
}

# Names that scikit-learn, torchmetrics and Keras have for the same formulas.
_ALIASES = {
    "acc": "accuracy",
    "accuracy_score": "accuracy",
    "auc": "auroc",
    "average_precision_score": "average_precision",
    "binary_accuracy": "accuracy",
    "categorical_accuracy": "accuracy",
    "f1_score": "f1",
    "jaccard": "iou",
    "jaccard_index": "iou",
    "jaccard_score": "iou",
    "mean_absolute_error": "mae",
    "mean_io_u": "iou",
    "mean_squared_error": "mse",
    "miou": "iou",
    "precision_score": "precision",
    "r2_score": "r2",
    "recall_score": "recall",
    "roc_auc": "auroc",
    "roc_auc_score": "auroc",
    "root_mean_squared_error": "rmse",
    "sensitivity": "recall",
    "sparse_categorical_accuracy": "accuracy",
    "sparse_top_k_categorical_accuracy": "top_k_accuracy",
    "top_k": "top_k_accuracy",
    "top_k_accuracy_score": "top_k_accuracy",
    "top_k_categorical_accuracy": "top_k_accuracy",
}

METRIC = Kind(
    name="metric",
    base=Metric,  # type: ignore[type-abstract]  # only instances of it are made
    registry=METRICS,
    example="edgeopt.metrics.Accuracy()",
    aliases=_ALIASES,
)
