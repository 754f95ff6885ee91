"""What slots of different rules have in common, so that one rule can go on where another left off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

__all__ = ["AVERAGE", "COPIES", "LATE", "MEANINGS", "UNCORRECTED", "Meaning"]

Numbers = Mapping[str, float]


class Meaning(NamedTuple):
    """What a slot holds.

    Attributes:
        kind: Two slots of one kind hold the same, up to their factors.
        factor: The slot's size relative to others of its kind, from the rule's numbers.
    """

    kind: str
    factor: Callable[[Numbers], float] = lambda _: 1.0


def _sum_factor(numbers: Numbers) -> float:
    """b ← momentum·b + (1 - dampening)·g settles at (1 - dampening)/(1 - momentum) times the mean of g."""
    return (1.0 - numbers.get("dampening", 0.0)) / (1.0 - numbers.get("momentum", 0.0))


_MEAN = Meaning("exponential moving average of the gradient")
_SUM = Meaning(_MEAN.kind, _sum_factor)
_SQUARE = Meaning("exponential moving average of the squared gradient")
_MAXIMUM = Meaning("largest average of the squared gradient")
_SLOW = Meaning("slow copy of the parameter")
_AVERAGE = Meaning("average of the parameter, which evaluation uses in its place")

_MOMENTS = {"exp_avg": _MEAN, "exp_avg_sq": _SQUARE, "max_exp_avg_sq": _MAXIMUM}

#: By class and slot; what is not here means the same only within one class.
MEANINGS: dict[str, dict[str, Meaning]] = {
    **dict.fromkeys(
        (
            *("AMSBound", "AdaBound", "AdaMod", "Adam", "AdamP", "AdamW", "DiffGrad", "Grams", "LAMB"),
            *("MoMoAdam", "NAdam", "PAdam", "RAdam", "SPAM", "SparseAdam"),
        ),
        _MOMENTS,
    ),
    "AdaBelief": {"exp_avg": _MEAN},
    "AdEMAMix": {"exp_avg": _MEAN, "exp_avg_sq": _SQUARE},
    "AdaMuon": {"momentum_buffer": _MEAN},
    "AdamMini": {"exp_avg": _MEAN},
    "Adamax": {"exp_avg": _MEAN},
    "Adan": {"exp_avg": _MEAN},
    "Averaged": {"averaged_param": _AVERAGE},
    "AveragedAdam": {**_MOMENTS, "averaged_param": _AVERAGE},
    "LaProp": {"exp_avg_sq": _SQUARE},
    "Lion": {"exp_avg": _MEAN},
    "MoMo": {"exp_avg": _MEAN},
    "Muon": {"momentum_buffer": _MEAN},
    "NorMuon": {"momentum_buffer": _MEAN},
    "QHM": {"momentum_buffer": _MEAN},
    "RMSprop": {"square_avg": _SQUARE, "grad_avg": _MEAN},
    "Ranger": {**_MOMENTS, "slow_param": _SLOW},
    "ScheduleFreeAdamW": {"exp_avg_sq": _SQUARE},
    "ScheduleFreeRAdam": {"exp_avg_sq": _SQUARE},
    "SGD": {"momentum_buffer": _SUM},
    "SGDW": {"momentum_buffer": _SUM},
    "SignSGD": {"momentum_buffer": _MEAN},
    "SparseSGD": {"momentum_buffer": _SUM},
    "Tiger": {"exp_avg": _MEAN},
    "Lookahead": {"slow_param": _SLOW},
}

#: The kind of what evaluation uses in the parameter's place.
AVERAGE = _AVERAGE.kind

#: Kinds that are copies of the parameter: they begin anew where the parameter is replaced.
COPIES = frozenset({_AVERAGE.kind, _SLOW.kind})

#: Kinds, and slots known to one class alone, that may start at any time: a first value says nothing wrong. The last
#: three are those of schedule-free averaging, whose average begins with the first rate that it sees.
LATE = frozenset({_MAXIMUM.kind, _SLOW.kind, _AVERAGE.kind, "z", "lr_max", "weight_sum"})

#: Rules that do not divide by 1 - βᵗ or the like: they may go on at t = 1 with averages that are not zero.
UNCORRECTED = frozenset({"Lion", "Muon", "NorMuon", "QHM", "RMSprop", "SGD", "SGDW", "SignSGD", "SparseSGD", "Tiger"})
