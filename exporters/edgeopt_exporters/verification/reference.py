"""What an export is compared with: the model itself, in its own framework."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

__all__ = ["Arrays", "Reference", "ReferenceFailed", "Trained"]

Arrays: TypeAlias = Mapping[str, NDArray[Any]]


class ReferenceFailed(Exception):  # noqa: N818  # what failed is the model, at a size that it need not have
    """The model cannot be run as asked; the message says why."""


@dataclass(frozen=True)
class Trained:
    """What one training pass of the model gives.

    Attributes:
        state: The parameters and buffers asked for, as the pass leaves them.
        gradients: Of the parameters asked for, in the direction of the outputs' cotangents; zeros where there is none.
    """

    state: Arrays
    gradients: Arrays


class Reference(Protocol):
    """A model in its own framework, all of whose random numbers are the lower quartile of their distribution."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The size of each symbolic dimension in the examples."""

    @property
    def state(self) -> Arrays:
        """Every parameter and buffer as it is outside of the runs; what shares memory with the model."""

    @property
    def asked(self) -> Collection[str]:
        """The symbolic dimensions that were asked for."""

    @property
    def epsilon(self) -> float:
        """The relative spacing of the coarsest type that it has converted numbers to when it ran; zero without one."""

    def with_frozen(self, statistics: Collection[str]) -> Reference:
        """The same model, where what owns these running statistics uses them in training too."""

    def with_values(self, values: Arrays) -> Reference:
        """The same model with other values of some parameters."""

    def inputs(self, sizes: Mapping[str, int]) -> Arrays:
        """The examples at other sizes; those not named stay."""

    def predict(self, inputs: Arrays, nudge: float = 0.0) -> Arrays:
        """Outputs in evaluation mode.

        Args:
            inputs: By name.
            nudge: Every parameter and floating-point input is multiplied by a number that differs from one by at most
                so much, which shows what rounding does to the results.

        Raises:
            ReferenceFailed: The model does not take such inputs, or draws numbers in a way that cannot be repeated.
        """

    def train(
        self,
        inputs: Arrays,
        cotangents: Callable[[Arrays], Arrays],
        wanted: Collection[str],
        nudge: float = 0.0,
        state: Collection[str] | None = None,
    ) -> Trained:
        """Forward and backward in training mode; the model stays as it is.

        Args:
            inputs: By name.
            cotangents: Gives those of some outputs, from the outputs.
            wanted: The parameters whose gradients are asked for.
            nudge: As for `predict`.
            state: The parameters and buffers asked for; by default those that the pass changes.

        Raises:
            ReferenceFailed: As for `predict`.
        """
