"""What to train and how: the user's choices, checked once."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from edgeopt.errors import ParameterPatternError, SignatureError
from edgeopt.losses import Loss
from edgeopt.metrics import Metric
from edgeopt.schedules import SCHEDULES, Schedule
from edgeopt.training.forward import ForwardModel
from edgeopt.training.updating.groups import Need, UpdateGroup, no_match
from edgeopt.training.updating.units import Unit
from edgeopt.transforms import Transform
from edgeopt_runtime.manifest import Hyperparameter

__all__ = ["Plan", "group_numbers", "group_provenance", "select_trainable"]


@dataclass(frozen=True)
class Plan:
    """The settings of one training step.

    Attributes:
        loss: What is minimised.
        groups: The trainable parameters under their rules.
        transforms: What happens to the gradients before the update, in order.
        metrics: What is reported beside the loss.
        output: Name of the model output that loss and metrics read.
        recompute: Which activations are computed again in the backward pass: "auto", or patterns of node names.
    """

    loss: Loss
    groups: tuple[UpdateGroup, ...]
    transforms: tuple[Transform, ...]
    metrics: tuple[Metric, ...]
    output: str
    recompute: str | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [metric.name for metric in self.metrics]
        repeated = sorted({name for name in names if names.count(name) > 1 or name in ("loss", "lr")})
        if repeated:
            raise SignatureError(f"Several reported values would be called {repeated}; use each metric once.")

    @property
    def trainable(self) -> tuple[str, ...]:
        """Names of the parameters that are updated."""
        return tuple(name for group in self.groups for name in group.members)

    @property
    def units(self) -> tuple[Unit, ...]:
        """The trainable parameters as they are updated, one by one or joined."""
        return tuple(unit for group in self.groups for unit in group.units)

    def measurements(self) -> Iterator[Need]:
        """Everything that the graphs measure in their batch."""
        for group in self.groups:
            yield from group.measurements()

    def hyperparameters(self) -> Iterator[Hyperparameter]:
        """Every hyperparameter under its full name, `owner.name`; the description names the class to read about it."""
        yield from group_numbers(self.groups)
        for position, transform in enumerate(self.transforms):
            owner = self.transform_name(position)
            ranges = transform.ranges()
            for name, value in transform.hyperparameters().items():
                text = f"{name} of {type(transform).__name__}"
                yield Hyperparameter(f"{owner}.{name}", "float64", value, text, ranges.get(name))

    def transform_name(self, position: int) -> str:
        """`clip_by_value`, and `clip_by_value_2` for the second of its kind."""
        kinds = [_snake_case(type(transform).__name__) for transform in self.transforms]
        earlier = kinds[:position].count(kinds[position])
        return f"{kinds[position]}_{earlier + 1}" if earlier else kinds[position]

    def provenance(self) -> dict[str, str]:
        """The choices in words, for the manifest."""
        return {
            "loss": type(self.loss).__name__,
            **group_provenance(self.groups),
            "transforms": ", ".join(type(transform).__name__ for transform in self.transforms),
        }


def group_numbers(groups: Sequence[UpdateGroup]) -> list[Hyperparameter]:
    """The hyperparameters of rules and schedules, each once."""
    return list({full: number for group in groups for full, number in group.values.items()}.values())


def group_provenance(groups: Sequence[UpdateGroup]) -> dict[str, str]:
    """Rules and schedules in words, for the manifest."""
    return {
        "optimizer": ", ".join(type(group.rule).__name__ for group in groups),
        "schedule": ", ".join(_schedule_name(group.rule.schedule) for group in groups),
    }


def _schedule_name(schedule: Schedule) -> str:
    return next((key for key, value in SCHEDULES.items() if value is type(schedule)), type(schedule).__name__)


def _snake_case(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


def select_trainable(model: ForwardModel, patterns: str | Iterable[str] | None) -> tuple[str, ...]:
    """Names of the parameters to train.

    Args:
        model: The model.
        patterns: Shell-style patterns of parameter names (`"classifier.*"`), one or several; None selects every
            parameter that its framework does not hold frozen.

    Raises:
        ParameterPatternError: A pattern matches nothing, or nothing at all is selected.
    """
    names = list(model.parameters)
    if patterns is None:
        selected = [name for name in names if name not in model.frozen]
    else:
        wanted = [patterns] if isinstance(patterns, str) else list(patterns)
        for pattern in wanted:
            if not fnmatch.filter(names, pattern):
                raise ParameterPatternError(no_match(pattern, names))
        selected = [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted)]
    if not selected:
        raise ParameterPatternError("No parameter is trainable: the model has none, or all of them are frozen.")
    return tuple(selected)
