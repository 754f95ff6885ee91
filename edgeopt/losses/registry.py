"""Every loss by name. The contract tests run over this table."""

from __future__ import annotations

from edgeopt.losses.base import Loss
from edgeopt.losses.binary import BCEWithLogits
from edgeopt.losses.cross_entropy import CrossEntropy
from edgeopt.losses.regression import L1, MSE, Huber

__all__ = ["LOSSES"]

LOSSES: dict[str, type[Loss]] = {
    "bce_with_logits": BCEWithLogits,
    "cross_entropy": CrossEntropy,
    "huber": Huber,
    "l1": L1,
    "mse": MSE,
}
