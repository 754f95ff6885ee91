"""What a solver reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BilevelResult", "Progress", "Record", "StopReason"]

StopReason = Literal["iterations", "tolerance", "callback"]


class Record(NamedTuple):
    """One iteration in numbers.

    Attributes:
        iteration: Counts from 0.
        upper_loss: f at x before, and y after, the steps of this iteration.
        hyper_gradient: Norm of the gradient in x.
        lower_gradient: Norm of the gradient in y at the last step of y.
        residual: Norm of b - A v, as the Lanczos process knows it without a further product; exact where A does not
            move.
        subspace: How many vectors the subspace has.
    """

    iteration: int
    upper_loss: float
    hyper_gradient: float
    lower_gradient: float
    residual: float
    subspace: int


class Progress(NamedTuple):
    """What a callback sees: the numbers of an iteration, and copies of the variables after it."""

    record: Record
    x: dict[str, NDArray[Any]]
    y: dict[str, NDArray[Any]]
    v: dict[str, NDArray[Any]]


@dataclass(frozen=True)
class BilevelResult:
    """How a problem of two levels was solved.

    Attributes:
        x: The upper variables.
        y: The lower variables, as far as they follow x.
        v: The solution of the linear system with the Hessian of the lower level.
        history: One record an iteration.
        reason: Why it stopped. ``tolerance``: all three norms are small enough. ``callback``: it returned True.
            ``iterations``: the limit.
    """

    x: dict[str, NDArray[Any]]
    y: dict[str, NDArray[Any]]
    v: dict[str, NDArray[Any]]
    history: tuple[Record, ...]
    reason: StopReason
