"""What a task is: a few settings, and the recipe that they stand for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from edgeopt.arguments import Component
from edgeopt.checks import at_least, fraction, positive, require
from edgeopt.losses import Loss
from edgeopt.metrics import Metric
from edgeopt.optimizers import AdamW, Group, Optimizer, ParameterGroups
from edgeopt.schedules import Constant, Schedule, WarmupCosine
from edgeopt.transforms import ClipByGlobalNorm, Transform

__all__ = ["NO_DECAY", "Recipe", "Task"]

#: Biases and the scales and offsets of normalisations, which have one dimension, do not decay.
NO_DECAY = Group(ndim=(0, 1), weight_decay=0.0, name="no_decay")


@dataclass(frozen=True)
class Recipe:
    """What a training step is made of; `dataclasses.replace` changes any of it.

    It unpacks into the arguments of `edgeopt.export`: `edgeopt.export(model, x, **recipe)`.

    Attributes:
        loss: What is minimised.
        metrics: What is reported beside it.
        optimizer: The update rule of the parameters that no group has.
        schedule: Its learning rate; None leaves the rule the one that it has.
        groups: What is different for some parameters. One that matches none is left out.
        transforms: What happens to gradients before the update.
    """

    loss: Loss
    metrics: tuple[Metric, ...]
    optimizer: Optimizer
    schedule: Schedule | None = None
    groups: tuple[Group, ...] = ()
    transforms: tuple[Transform, ...] = ()

    def settings(self) -> dict[str, Any]:
        """The arguments of `edgeopt.export`."""
        rule: Any = self.optimizer
        if self.schedule is not None:
            rule = replace(rule, lr=self.schedule)
        return {
            "loss": self.loss,
            "metrics": list(self.metrics),
            "optimizer": ParameterGroups(rule, tuple(self.groups)) if self.groups else rule,
            "transforms": list(self.transforms),
        }

    def keys(self) -> Iterator[str]:
        """The names of the arguments, as `**recipe` asks for them."""
        return iter(self.settings())

    def __getitem__(self, name: str) -> Any:
        return self.settings()[name]


@dataclass(frozen=True)
class Task(metaclass=Component):
    """A task, from which a recipe with defaults follows.

    All of them train with AdamW, without decay of biases and normalisations (Devlin et al., arXiv:1810.04805; He et
    al., arXiv:1812.01187), and clip the gradients' norm at 1.

    With `total_steps`, the number of updates in the whole run, the rate rises over the first `warmup` of them, a share,
    and falls to 0 at the end, where the updates go on at 0. Without, it stays what it is.

    `output` and `target` name the model's output and the batch input as in `edgeopt.losses.Loss`.
    """

    #: Its key in the registry.
    name: ClassVar[str]

    lr: float = field(default=1e-3, kw_only=True)
    weight_decay: float = field(default=0.01, kw_only=True)
    total_steps: int | None = field(default=None, kw_only=True)
    warmup: float = field(default=0.1, kw_only=True)
    output: str | None = field(default=None, kw_only=True)
    target: str = field(default="target", kw_only=True)

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        at_least("weight_decay", self.weight_decay, 0.0)
        fraction("warmup", self.warmup)
        if self.total_steps is not None:
            positive("total_steps", self.total_steps)
            require(isinstance(self.total_steps, int), f"total_steps must be a whole number, got {self.total_steps!r}")

    @abstractmethod
    def recipe(self) -> Recipe:
        """What the settings stand for."""

    def settings(self, **changes: Any) -> dict[str, Any]:
        """The arguments of `edgeopt.export`, with parts of the recipe replaced: `settings(loss=Focal())`."""
        return replace(self.recipe(), **changes).settings()

    def keys(self) -> Iterator[str]:
        """The names of the arguments, as `**task` asks for them."""
        return self.recipe().keys()

    def __getitem__(self, name: str) -> Any:
        return self.recipe()[name]

    def made_of(self, loss: Loss, *metrics: Metric, falling: type[Any] = WarmupCosine) -> Recipe:
        """The recipe that tasks share, for a loss and metrics."""
        schedule: Schedule = Constant(self.lr)
        if self.total_steps is not None:
            schedule = falling(self.lr, round(self.warmup * self.total_steps), self.total_steps)
        return Recipe(
            loss=loss,
            metrics=metrics,
            optimizer=AdamW(self.lr, weight_decay=self.weight_decay),
            schedule=schedule,
            groups=(NO_DECAY,) if self.weight_decay else (),
            transforms=(ClipByGlobalNorm(1.0),),
        )
