"""What to train and how: the user's choices, checked once."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from edgeopt.errors import ParameterPatternError
from edgeopt.schedules import SCHEDULES, Schedule
from edgeopt.training.forward import ForwardModel
from edgeopt.training.names import snake_case
from edgeopt.training.objective import Objective
from edgeopt.training.reports import ResolvedMetric
from edgeopt.training.updating.groups import Need, UpdateGroup, no_match
from edgeopt.training.updating.units import Unit
from edgeopt.transforms import Transform
from edgeopt_runtime.manifest import Hyperparameter

__all__ = ["Plan", "group_numbers", "group_provenance", "select_trainable"]


@dataclass(frozen=True)
class Plan:
    """The settings of one training step.

    Attributes:
        objective: What is minimised.
        groups: The trainable parameters under their rules.
        transforms: What happens to the gradients before the update, in order.
        metrics: What is reported beside the loss.
        recompute: Which activations are computed again in the backward pass: "auto", or patterns of node names.
    """

    objective: Objective
    groups: tuple[UpdateGroup, ...]
    transforms: tuple[Transform, ...]
    metrics: tuple[ResolvedMetric, ...]
    recompute: str | tuple[str, ...] = ()

    @property
    def trainable(self) -> tuple[str, ...]:
        """Names of the parameters that are updated."""
        return tuple(name for group in self.groups for name in group.members)

    @property
    def trained_metrics(self) -> tuple[ResolvedMetric, ...]:
        """The metrics that training can report."""
        return tuple(each for each in self.metrics if each.trained)

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
        kinds = [snake_case(type(transform).__name__) for transform in self.transforms]
        earlier = kinds[:position].count(kinds[position])
        return f"{kinds[position]}_{earlier + 1}" if earlier else kinds[position]

    def provenance(self) -> dict[str, str]:
        """The choices in words, for the manifest."""
        return {
            "loss": ", ".join(type(term.loss).__name__ for term in self.objective.terms),
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
