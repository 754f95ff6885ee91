"""Every update rule by name. The contract tests run over this table."""

from __future__ import annotations

from edgeopt.optimizers.adam import Adam, AdamW
from edgeopt.optimizers.base import Optimizer
from edgeopt.optimizers.sgd import SGD

__all__ = ["OPTIMIZERS"]

OPTIMIZERS: dict[str, type[Optimizer]] = {
    "adam": Adam,
    "adamw": AdamW,
    "sgd": SGD,
}
