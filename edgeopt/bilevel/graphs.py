"""The derivatives of a problem of two levels from two ONNX models, on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeopt.bilevel.level import Level, Program
from edgeopt.bilevel.problem import Data, Tensors, Upper
from edgeopt.derivatives import Model, gradient, hessian_vector
from edgeopt.errors import SignatureError
from edgeopt_runtime.providers import Options

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["OnnxProblem", "from_onnx"]


def from_onnx(
    *, lower: Model, upper: Model, x: str | Iterable[str], y: str | Iterable[str], threads: int | None = None
) -> OnnxProblem:
    """The problem whose two losses two ONNX models compute.

    Args:
        lower: The model of g, an ONNX model or its path. It has one output, the loss, a floating-point number.
        upper: The model of f, in the same way.
        x: Names of the upper variables: inputs, initializers or constants of either model or both.
        y: Names of the lower variables, all of which the lower model has, and the upper one some.
        threads: Threads of ONNX Runtime within an operator; None means one for each core.

    Returns:
        A problem for `lancbio`. Inputs of a model that are no variables are its data.

    Raises:
        SignatureError: A model has another number of outputs or one that is no number; a name is given twice, unknown,
            or not that of a floating-point tensor; the models disagree about a variable.
        UnsupportedOperatorError: Operators between variables and loss have no gradient rule.
        UnsupportedModelError: A model draws random numbers, or is older than opset 7.
    """
    upper_names, lower_names = ([names] if isinstance(names, str) else list(names) for names in (x, y))
    names = [*upper_names, *lower_names]
    if len(set(names)) < len(names) or not upper_names or not lower_names:
        raise SignatureError(f"x={upper_names}, y={lower_names}: both need names, and each tensor is to be named once.")
    below, above = Level("lower", lower, names), Level("upper", upper, names)
    if unknown := [name for name in names if name not in {**below.variables, **above.variables}]:
        raise SignatureError(f"{unknown} is no input or initializer of the {below}, or the {above}.")
    if absent := [name for name in lower_names if name not in below.variables]:
        raise SignatureError(f"y={lower_names}: {absent} is no input or initializer of the {below}.")
    if not any(name in above.variables for name in lower_names):
        raise SignatureError(f"y={lower_names}: none is an input or initializer of the {above}.")
    for name in below.variables.keys() & above.variables.keys():
        if not _agree(below.variables[name], above.variables[name]):
            raise SignatureError(
                f"{name!r} is {below.variables[name]} in the lower model, but {above.variables[name]} in the upper one."
            )
    return OnnxProblem(below, above, upper_names, lower_names, Options(threads=threads))


class OnnxProblem:
    """The `BilevelProblem` of two models, which `from_onnx` makes.

    Attributes:
        x: Values of the upper variables that are initializers of a model, of the lower one if both have them.
        y: The same for the lower variables.
    """

    def __init__(self, below: Level, above: Level, x: list[str], y: list[str], options: Options) -> None:
        names = [*x, *y]
        values = above.values | below.values
        self.x, self.y = ({name: values[name] for name in group if name in values} for group in (x, y))
        inner = [name for name in x if name in below.variables]
        outer = [name for name in names if name in above.variables]
        first = gradient(below.model, of=below.loss, wrt=y)
        self._gradient = Program("lower gradient", first, names, options)
        second = hessian_vector(below.model, of=below.loss, wrt=y)
        self._hessian = Program("Hessian-vector product", second, names, options)
        # A lower level that x has no part in is allowed, if of little use.
        mixed = hessian_vector(below.model, of=below.loss, wrt=inner, along=y) if inner else None
        self._cross = None if mixed is None else Program("cross product", mixed, names, options)
        both = gradient(above.model, of=above.loss, wrt=outer, value=True)
        self._upper, self._loss = Program("upper gradient", both, names, options), above.loss

    def lower_gradient(self, x: Tensors, y: Tensors, data: Data) -> Tensors:
        """∇_y g."""
        return _parts("gradient", y, self._gradient.run({**x, **y}, data))

    def hessian_vector(self, x: Tensors, y: Tensors, vector: Tensors, data: Data) -> Tensors:
        """∇²_yy g times a vector."""
        return _parts("product", y, self._hessian.run({**x, **y, **_inputs(vector)}, data))

    def cross_vector(self, x: Tensors, y: Tensors, vector: Tensors, data: Data) -> Tensors:
        """∇²_xy g times a vector; zeros for what the lower model lacks."""
        results = {} if self._cross is None else self._cross.run({**x, **y, **_inputs(vector)}, data)
        return _parts("product", x, results)

    def upper(self, x: Tensors, y: Tensors, data: Data) -> Upper:
        """f and its gradients; zeros for what the upper model lacks."""
        results = self._upper.run({**x, **y}, data)
        return Upper(results[self._loss].item(), _parts("gradient", x, results), _parts("gradient", y, results))


def _inputs(vector: Tensors) -> dict[str, NDArray[Any]]:
    return {f"vector.{name}": array for name, array in vector.items()}


def _parts(kind: str, like: Tensors, results: Tensors) -> dict[str, NDArray[Any]]:
    return {name: results.get(f"{kind}.{name}", np.zeros_like(array)) for name, array in like.items()}


def _agree(one: tuple[str, tuple[int | str, ...]], other: tuple[str, tuple[int | str, ...]]) -> bool:
    """Whether two types and shapes may be those of one array: named dimensions may have any length."""
    (dtype, shape), (other_dtype, other_shape) = one, other
    if dtype != other_dtype or len(shape) != len(other_shape):
        return False
    return all(isinstance(a, str) or isinstance(b, str) or a == b for a, b in zip(shape, other_shape, strict=True))
