"""Losses as array programs: what the model's output and the targets are compared by."""

from __future__ import annotations

from edgeopt.losses.base import ArraySpec, Each, ElementwiseLoss, Loss
from edgeopt.losses.binary import BCEWithLogits, BinaryFocal, Hinge
from edgeopt.losses.classification import NLL, Focal, MultiMargin
from edgeopt.losses.cross_entropy import CrossEntropy
from edgeopt.losses.ctc import CTC
from edgeopt.losses.distillation import Distillation
from edgeopt.losses.embeddings import CosineEmbedding, InfoNCE, MarginRanking, Triplet
from edgeopt.losses.from_function import FromFunction, from_function, is_array_program
from edgeopt.losses.from_onnx import FromONNX, from_onnx
from edgeopt.losses.from_output import FromOutput
from edgeopt.losses.from_torch import FromTorch, from_torch
from edgeopt.losses.likelihoods import GaussianNLL, KLDivergence, PoissonNLL
from edgeopt.losses.numerics import logsumexp
from edgeopt.losses.overlap import Dice, Tversky
from edgeopt.losses.registry import LOSS, LOSSES
from edgeopt.losses.regression import L1, MSE, Huber, LogCosh, Quantile, SmoothL1
from edgeopt.losses.weighted import WeightedSum

__all__ = [
    "CTC",
    "L1",
    "LOSS",
    "LOSSES",
    "MSE",
    "NLL",
    "ArraySpec",
    "BCEWithLogits",
    "BinaryFocal",
    "CosineEmbedding",
    "CrossEntropy",
    "Dice",
    "Distillation",
    "Each",
    "ElementwiseLoss",
    "Focal",
    "FromFunction",
    "FromONNX",
    "FromOutput",
    "FromTorch",
    "GaussianNLL",
    "Hinge",
    "Huber",
    "InfoNCE",
    "KLDivergence",
    "LogCosh",
    "Loss",
    "MarginRanking",
    "MultiMargin",
    "PoissonNLL",
    "Quantile",
    "SmoothL1",
    "Triplet",
    "Tversky",
    "WeightedSum",
    "from_function",
    "from_onnx",
    "from_torch",
    "is_array_program",
    "logsumexp",
]
