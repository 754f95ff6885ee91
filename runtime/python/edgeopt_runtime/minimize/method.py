"""What a method is: settings, and for those that use gradients a rule that proposes directions for a common loop."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from edgeopt_runtime.errors import MinimizeError
from edgeopt_runtime.minimize.objective import Objective

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Method", "Move", "Rule", "Settings"]


class Move(NamedTuple):
    """One accepted step.

    Attributes:
        step: Multiple of the direction.
        change: What was added to the point.
        before: The gradient where it started.
        after: The gradient where it ended.
    """

    step: float
    change: NDArray[Any]
    before: NDArray[Any]
    after: NDArray[Any]


class Rule(Protocol):
    """Where to go, from what has been seen.

    Attributes:
        scales_first_step: Whether its first direction is the gradient, whose length says nothing about the step.
    """

    scales_first_step: ClassVar[bool]

    def direction(self, x: NDArray[Any], gradient: NDArray[Any]) -> NDArray[Any]:
        """A direction of descent from a point with this gradient."""

    def learn(self, move: Move) -> None:
        """Take note of a step."""


@dataclass(frozen=True)
class Settings:
    """Settings of any method, and the graphs that it needs."""

    graphs: ClassVar[tuple[str, ...]]

    def require(self, name: str, value: object, holds: bool, wanted: str) -> None:
        """Refuse a setting.

        Raises:
            MinimizeError: It does not hold.
        """
        if not holds:
            raise MinimizeError(f"{type(self).__name__}: `{name}` must be {wanted}, not {value!r}.")


@dataclass(frozen=True)
class Method(Settings, ABC):
    """Settings of a method that follows directions found from gradients.

    Attributes:
        max_iter: Most directions to follow.
        max_eval: Most evaluations; those of a line search that has begun are made all the same. None means no limit.
        tolerance_grad: Stop when no component of the gradient is larger.
        tolerance_change: Stop when the loss, every parameter, or the decrease that the slope promises changes less.
        lr: The first step that is tried; the step that is taken where there is no line search.
        line_search_fn: ``strong_wolfe``.
        c1: How much of the decrease that the slope promises a step must keep.
        c2: How much of the slope may be left after a step.
    """

    max_iter: int = 200
    max_eval: int | None = None
    tolerance_grad: float = 1e-8
    tolerance_change: float = 0.0
    lr: float = 1.0
    line_search_fn: str | None = "strong_wolfe"
    c1: float = 1e-4
    c2: float = 0.9

    graphs: ClassVar[tuple[str, ...]] = ("accumulate",)
    line_searches: ClassVar[tuple[str | None, ...]] = ("strong_wolfe",)
    # By how many roundings of itself the loss may rise in a step.
    roundings: ClassVar[float] = 4.0

    def __post_init__(self) -> None:
        self.require("max_iter", self.max_iter, self.max_iter >= 0, "at least 0")
        self.require("max_eval", self.max_eval, self.max_eval is None or self.max_eval >= 1, "at least 1")
        self.require("tolerance_grad", self.tolerance_grad, self.tolerance_grad >= 0, "at least 0")
        self.require("tolerance_change", self.tolerance_change, self.tolerance_change >= 0, "at least 0")
        self.require("lr", self.lr, 0 < self.lr < math.inf, "positive")
        self.require("c1 and c2", (self.c1, self.c2), 0 < self.c1 < self.c2 < 1, "0 < c1 < c2 < 1")
        searches = self.line_searches
        self.require("line_search_fn", self.line_search_fn, self.line_search_fn in searches, f"one of {searches}")

    @abstractmethod
    def rule(self, objective: Objective) -> Rule:
        """A rule at the start of a run."""
