"""What a problem of two levels offers: the derivatives that its hyper-gradient is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BilevelProblem", "Data", "Tensors", "Upper"]

Tensors: TypeAlias = "Mapping[str, NDArray[Any]]"
Data: TypeAlias = "Mapping[str, Any]"


class Upper(NamedTuple):
    """The upper level at a point.

    Attributes:
        loss: f(x, y).
        to_x: ∇_x f, arrays like those of x.
        to_y: ∇_y f, arrays like those of y.
    """

    loss: float
    to_x: Tensors
    to_y: Tensors


class BilevelProblem(Protocol):
    """min over x of f(x, y*(x)), where y*(x) minimises g(x, ·), which must be smooth and strongly convex in y.

    Variables, vectors and results are arrays by name; arrays that are passed in are not to be changed. `data` is what
    the caller of the solver gave for that level: nothing, the same arrays each time, or a sample.
    """

    def lower_gradient(self, x: Tensors, y: Tensors, data: Data) -> Tensors:
        """∇_y g, arrays like those of y."""

    def hessian_vector(self, x: Tensors, y: Tensors, vector: Tensors, data: Data) -> Tensors:
        """∇²_yy g times a vector like y, arrays like those of y."""

    def cross_vector(self, x: Tensors, y: Tensors, vector: Tensors, data: Data) -> Tensors:
        """∇²_xy g times a vector like y, arrays like those of x: the gradient in x of ⟨∇_y g, vector⟩."""

    def upper(self, x: Tensors, y: Tensors, data: Data) -> Upper:
        """f and its two gradients."""
