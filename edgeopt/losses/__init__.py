"""Losses as array programs: what the model's output and the targets are compared by."""

from __future__ import annotations

from edgeopt.losses.base import ArraySpec, Loss
from edgeopt.losses.binary import BCEWithLogits
from edgeopt.losses.cross_entropy import CrossEntropy
from edgeopt.losses.numerics import logsumexp
from edgeopt.losses.registry import LOSS, LOSSES
from edgeopt.losses.regression import L1, MSE, Huber

__all__ = ["L1", "LOSS", "LOSSES", "MSE", "ArraySpec", "BCEWithLogits", "CrossEntropy", "Huber", "Loss", "logsumexp"]
