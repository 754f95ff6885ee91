"""Loss, metrics, optimizer and transforms from the words of the command line, and from a task for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import typer

from edgeopt.cli.components import build, build_all, build_optimizer
from edgeopt.errors import ConfigurationError
from edgeopt.losses import LOSS
from edgeopt.metrics import METRIC
from edgeopt.optimizers import AdamW, Group, Optimizer
from edgeopt.tasks import TASK, Recipe
from edgeopt.transforms import TRANSFORM

__all__ = ["Words"]


@dataclass(frozen=True)
class Words:
    """What was said on the command line; None where nothing was."""

    task: str | None
    loss: str | None
    metrics: Sequence[str] | None
    transforms: Sequence[str] | None
    optimizer: str | None
    lr: float | None
    schedule: str | None
    state: str | None

    def settings(self) -> dict[str, Any]:
        """The arguments of `edgeopt.export`.

        Raises:
            typer.BadParameter: Words that describe nothing, or too few.
        """
        if self.task is not None:
            return self._changed(build(TASK, self.task).recipe()).settings()
        if self.loss is None:
            raise typer.BadParameter("say what is minimised, or with --task what for", param_hint="--loss")
        return {
            "loss": build(LOSS, self.loss),
            "metrics": build_all(METRIC, self.metrics),
            "optimizer": build_optimizer(self.optimizer or "adamw", self.lr, self.schedule, self.state),
            "transforms": build_all(TRANSFORM, self.transforms),
        }

    def _changed(self, recipe: Recipe) -> Recipe:
        """A task's recipe with the parts replaced that were said."""
        changes: dict[str, Any] = {}
        if self.loss is not None:
            changes["loss"] = build(LOSS, self.loss)
        if self.metrics is not None:
            changes["metrics"] = tuple(build_all(METRIC, self.metrics))
        if self.transforms is not None:
            changes["transforms"] = tuple(build_all(TRANSFORM, self.transforms))
        if self.optimizer is not None or self.schedule is not None or self.state is not None:
            rule = self._rule(recipe)
            groups = tuple(group for group in recipe.groups if _fits(group, rule))
            changes |= {"optimizer": rule, "schedule": None, "groups": groups}
        elif self.lr is not None:
            changes["schedule"] = self._rate(recipe)
        return replace(recipe, **changes)

    def _rule(self, recipe: Recipe) -> Optimizer:
        """The optimizer that was said; or the task's, with what was said of it."""
        if self.optimizer is not None:
            return build_optimizer(self.optimizer, self.lr, self.schedule, self.state)
        own: Any = recipe.optimizer
        if self.schedule is None:
            return AdamW(self._rate(recipe), weight_decay=own.weight_decay, state=self.state)
        rate = own.lr if self.lr is None and "lr=" not in self.schedule else self.lr
        return build_optimizer(f"adamw:weight_decay={own.weight_decay}", rate, self.schedule, self.state)

    def _rate(self, recipe: Recipe) -> Any:
        """The task's schedule, at the rate that was said."""
        schedule: Any = recipe.schedule
        return schedule if self.lr is None else replace(schedule, lr=self.lr)


def _fits(group: Group, rule: Optimizer) -> bool:
    """Whether a group's settings are for such a rule: one without decay needs no exceptions from it."""
    try:
        group.rule(rule)
    except ConfigurationError:
        return False
    return True
