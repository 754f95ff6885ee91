"""Composes forward, loss, backward and update into the graphs of a bundle."""

from edgeopt.training.compose import compose
from edgeopt.training.examining.statistics import BatchNorm
from edgeopt.training.forward import ForwardGraph, ForwardModel
from edgeopt.training.narrowing import FrozenWeights, check_format
from edgeopt.training.surgery import Carryover, replace_optimizer

__all__ = [
    "BatchNorm",
    "Carryover",
    "ForwardGraph",
    "ForwardModel",
    "FrozenWeights",
    "check_format",
    "compose",
    "replace_optimizer",
]
