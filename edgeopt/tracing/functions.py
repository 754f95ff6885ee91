"""The subset of the Python Array API that update rules, losses, schedules and transforms are written in.

Source: the Array API standard, 2023.12. Names, argument order and results follow it. Beyond it there are `logsumexp`
(one stable ONNX operator), `top_k`, `scatter` and `stop_gradient`. Operands may be traced arrays, numpy arrays and
Python scalars; where no operand is traced, numpy computes the result at once, so constants fold by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, overload

import numpy as np

from edgeopt.errors import TracingError
from edgeopt.tracing.array import Array
from edgeopt.tracing.shapes import is_static

__all__ = [
    "abs",
    "all",
    "any",
    "arange",
    "argmax",
    "asarray",
    "astype",
    "bool",
    "broadcast_to",
    "clip",
    "concat",
    "cos",
    "equal",
    "exp",
    "expand_dims",
    "finfo",
    "float32",
    "float64",
    "floor",
    "full_like",
    "greater",
    "greater_equal",
    "inf",
    "int8",
    "int16",
    "int32",
    "int64",
    "isfinite",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log_softmax",
    "logical_and",
    "logical_not",
    "logical_or",
    "logsumexp",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "multiply",
    "nan",
    "not_equal",
    "ones_like",
    "permute_dims",
    "pi",
    "pow",
    "reshape",
    "scatter",
    "sign",
    "sin",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "stop_gradient",
    "sum",
    "take",
    "take_along_axis",
    "tanh",
    "top_k",
    "uint8",
    "where",
    "zeros_like",
]

pi, inf, nan = math.pi, math.inf, math.nan
float32, float64 = np.dtype("float32"), np.dtype("float64")
int8, uint8, int16, int32, int64 = (
    np.dtype("int8"),
    np.dtype("uint8"),
    np.dtype("int16"),
    np.dtype("int32"),
    np.dtype("int64"),
)
bool = np.dtype("bool")
finfo = np.finfo

Axis = int | tuple[int, ...] | None


class _Unary(Protocol):
    """A traced operand gives a traced result."""

    @overload
    def __call__(self, x: Array, /) -> Array: ...
    @overload
    def __call__(self, x: Any, /) -> Any: ...


class _Binary(Protocol):
    """One traced operand is enough for a traced result."""

    @overload
    def __call__(self, x1: Array, x2: Any, /) -> Array: ...
    @overload
    def __call__(self, x1: Any, x2: Array, /) -> Array: ...
    @overload
    def __call__(self, x1: Any, x2: Any, /) -> Any: ...


class _Reduction(Protocol):
    """A traced operand gives a traced result."""

    @overload
    def __call__(self, x: Array, /, *, axis: Axis = None, keepdims: Any = False) -> Array: ...
    @overload
    def __call__(self, x: Any, /, *, axis: Axis = None, keepdims: Any = False) -> Any: ...


def _traced(*operands: Any) -> Array | None:
    return next((x for x in operands if isinstance(x, Array)), None)


def _unary(op_type: str, eager: Callable[..., Any], doc: str) -> _Unary:
    def function(x: Any, /) -> Any:
        return x.tracer.emit(op_type, x) if isinstance(x, Array) else eager(x)

    function.__doc__ = doc
    return function


def _binary(op_type: str, eager: Callable[..., Any], doc: str) -> _Binary:
    def function(x1: Any, x2: Any, /) -> Any:
        traced = _traced(x1, x2)
        return eager(x1, x2) if traced is None else traced.tracer.emit(op_type, *traced.tracer.promote(x1, x2))

    function.__doc__ = doc
    return function


abs = _unary("Abs", np.abs, "Absolute value of each element.")
sign = _unary("Sign", np.sign, "-1, 0 or 1 for each element.")
sqrt = _unary("Sqrt", np.sqrt, "Square root of each element.")
exp = _unary("Exp", np.exp, "e to the power of each element.")
log = _unary("Log", np.log, "Natural logarithm of each element.")
sin = _unary("Sin", np.sin, "Sine of each element, in radians.")
cos = _unary("Cos", np.cos, "Cosine of each element, in radians.")
tanh = _unary("Tanh", np.tanh, "Hyperbolic tangent of each element.")
floor = _unary("Floor", np.floor, "Largest integer not above each element.")
isnan = _unary("IsNaN", np.isnan, "Whether each element is NaN.")
logical_not = _unary("Not", np.logical_not, "Negation of each boolean.")

multiply = _binary("Mul", np.multiply, "Product of each pair.")
maximum = _binary("Max", np.maximum, "Larger of each pair.")
minimum = _binary("Min", np.minimum, "Smaller of each pair.")
equal = _binary("Equal", np.equal, "Whether the elements of each pair are equal.")
less = _binary("Less", np.less, "Whether the first of each pair is smaller.")
less_equal = _binary("LessOrEqual", np.less_equal, "Whether the first of each pair is not larger.")
greater = _binary("Greater", np.greater, "Whether the first of each pair is larger.")
greater_equal = _binary("GreaterOrEqual", np.greater_equal, "Whether the first of each pair is not smaller.")
logical_and = _binary("And", np.logical_and, "Conjunction of each pair of booleans.")
logical_or = _binary("Or", np.logical_or, "Disjunction of each pair of booleans.")
matmul = _binary("MatMul", np.matmul, "Matrix product, broadcast over leading dimensions.")


def not_equal(x1: Any, x2: Any, /) -> Any:
    """Whether the elements of each pair differ."""
    return logical_not(equal(x1, x2))


def pow(x1: Any, x2: Any, /) -> Any:
    """First of each pair to the power of the second."""
    return np.power(x1, x2) if _traced(x1, x2) is None else x1**x2


def square(x: Any, /) -> Any:
    """Each element times itself."""
    return x * x


@overload
def log1p(x: Array, /) -> Array: ...
@overload
def log1p(x: Any, /) -> Any: ...
def log1p(x: Any, /) -> Any:
    """log(1 + x), accurate also where x is small.

    ONNX has no Log1p. With u = 1 + x rounded, log(u)·x/(u - 1) cancels the rounding of the sum; where u = 1 the
    result is x itself. Source: Kahan, as in Goldberg, "What every computer scientist should know about floating-point
    arithmetic", theorem 4.
    """
    if not isinstance(x, Array):
        return np.log1p(x)
    u = 1.0 + x
    exact = equal(u, ones_like(u))
    return where(exact, x, log(u) * (x / where(exact, ones_like(u), u - 1.0)))


def isfinite(x: Any, /) -> Any:
    """Whether each element is neither NaN nor infinite."""
    if not isinstance(x, Array):
        return np.isfinite(x)
    return less(abs(x), x.tracer.constant(math.inf, x.dtype))


@overload
def where(condition: Array, x1: Any, x2: Any, /) -> Array: ...
@overload
def where(condition: Any, x1: Any, x2: Any, /) -> Any: ...
def where(condition: Any, x1: Any, x2: Any, /) -> Any:
    """`x1` where the condition holds, else `x2`."""
    traced = _traced(condition, x1, x2)
    if traced is None:
        return np.where(condition, x1, x2)
    if not isinstance(x1, (Array, np.ndarray, np.generic)) and not isinstance(x2, (Array, np.ndarray, np.generic)):
        raise TracingError("`where` needs at least one array among its two values, to know their dtype.")
    return traced.tracer.emit("Where", condition, *traced.tracer.promote(x1, x2))


@overload
def clip(x: Array, /, min: Any = None, max: Any = None) -> Array: ...
@overload
def clip(x: Any, /, min: Any = None, max: Any = None) -> Any: ...
def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """Each element limited to [min, max]; NaN stays NaN."""
    if not isinstance(x, Array):
        return np.clip(x, min, max)
    low = x if min is None else maximum(x, min)
    return low if max is None else minimum(low, max)


def _reduction(op_type: str, eager: Callable[..., Any], doc: str) -> _Reduction:
    def function(x: Any, /, *, axis: Axis = None, keepdims: Any = False) -> Any:
        if not isinstance(x, Array):
            return eager(x, axis=axis, keepdims=keepdims)
        # An empty list of axes means all of them to ONNX.
        if x.ndim == 0 or axis == ():
            return x
        return x.tracer.emit(op_type, x, _axes(axis), keepdims=int(keepdims))

    function.__doc__ = doc
    return function


def _axes(axis: Axis) -> list[int] | None:
    if axis is None:
        return None
    return [axis] if isinstance(axis, int) else list(axis)


sum = _reduction("ReduceSum", np.sum, "Sum over the axes (all of them by default).")
mean = _reduction("ReduceMean", np.mean, "Mean over the axes (all of them by default).")
max = _reduction("ReduceMax", np.max, "Largest element over the axes (all of them by default).")
min = _reduction("ReduceMin", np.min, "Smallest element over the axes (all of them by default).")


def log_softmax(x: Any, axis: int, /) -> Any:
    """Logarithms of the softmax over an axis."""
    if isinstance(x, Array):
        return x.tracer.emit("LogSoftmax", x, axis=axis)
    return x - logsumexp(x, axis=axis, keepdims=True)


def logsumexp(x: Any, /, *, axis: Axis = None, keepdims: Any = False) -> Any:
    """log of the sum of exponentials over the axes, without overflow."""
    if axis == ():
        return x
    if isinstance(x, Array):
        return x.tracer.emit("ReduceLogSumExp", x, _axes(axis), keepdims=int(keepdims))
    top = np.max(x, axis=axis, keepdims=True)
    total = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return total if keepdims else np.squeeze(total, axis=axis)


def any(x: Any, /, *, axis: Axis = None, keepdims: Any = False) -> Any:
    """Whether one element over the axes is true."""
    if not isinstance(x, Array):
        return np.any(x, axis=axis, keepdims=keepdims)
    return max(astype(x, int32), axis=axis, keepdims=keepdims) > np.int32(0)


def all(x: Any, /, *, axis: Axis = None, keepdims: Any = False) -> Any:
    """Whether every element over the axes is true."""
    if not isinstance(x, Array):
        return np.all(x, axis=axis, keepdims=keepdims)
    return min(astype(x, int32), axis=axis, keepdims=keepdims) > np.int32(0)


def argmax(x: Any, /, *, axis: int, keepdims: Any = False) -> Any:
    """Index of the first largest element along the axis, int64."""
    if not isinstance(x, Array):
        return np.argmax(x, axis=axis, keepdims=keepdims)
    return x.tracer.emit("ArgMax", x, axis=axis, keepdims=int(keepdims))


def asarray(value: Any, /, *, dtype: Any = None) -> Any:
    """The value as an array; constants stay numpy arrays until they meet a traced one."""
    if isinstance(value, Array):
        return value if dtype is None else astype(value, dtype)
    return np.asarray(value, dtype=dtype)


@overload
def astype(x: Array, dtype: Any, /) -> Array: ...
@overload
def astype(x: Any, dtype: Any, /) -> Any: ...
def astype(x: Any, dtype: Any, /) -> Any:
    """The array with another dtype."""
    return x.tracer.cast(x, dtype) if isinstance(x, Array) else np.asarray(x).astype(dtype)


def arange(start: int, stop: int | None = None, step: int = 1, *, dtype: Any = int64) -> Any:
    """Evenly spaced integers, always a constant."""
    return np.arange(start, stop, step, dtype=dtype) if stop is not None else np.arange(start, dtype=dtype)


def full_like(x: Any, fill_value: Any, /, *, dtype: Any = None) -> Any:
    """An array of x's shape with every element `fill_value` (a Python scalar)."""
    if not isinstance(x, Array):
        return np.full_like(x, fill_value, dtype=dtype)
    value = np.asarray(fill_value, dtype=x.dtype if dtype is None else dtype)
    if x.ndim == 0:
        return x.tracer.constant(value)
    shape: Any = list(x.shape) if is_static(x.shape) else x.tracer.emit("Shape", x)
    return x.tracer.emit("Expand", value, shape).with_shape(x.shape)


@overload
def zeros_like(x: Array, /, *, dtype: Any = None) -> Array: ...
@overload
def zeros_like(x: Any, /, *, dtype: Any = None) -> Any: ...
def zeros_like(x: Any, /, *, dtype: Any = None) -> Any:
    """Zeros of x's shape."""
    return full_like(x, 0, dtype=dtype)


@overload
def ones_like(x: Array, /, *, dtype: Any = None) -> Array: ...
@overload
def ones_like(x: Any, /, *, dtype: Any = None) -> Any: ...
def ones_like(x: Any, /, *, dtype: Any = None) -> Any:
    """Ones of x's shape."""
    return full_like(x, 1, dtype=dtype)


def reshape(x: Any, /, shape: Sequence[int]) -> Any:
    """The same elements in another shape, -1 for the one dimension that follows from the others."""
    return x.tracer.emit("Reshape", x, list(shape)) if isinstance(x, Array) else np.reshape(x, tuple(shape))


def permute_dims(x: Any, /, axes: Sequence[int]) -> Any:
    """The array with its dimensions in another order."""
    return x.tracer.emit("Transpose", x, perm=list(axes)) if isinstance(x, Array) else np.transpose(x, tuple(axes))


def expand_dims(x: Any, /, *, axis: int) -> Any:
    """The array with a dimension of size one put in at `axis`."""
    return x.tracer.emit("Unsqueeze", x, [axis]) if isinstance(x, Array) else np.expand_dims(x, axis)


def squeeze(x: Any, /, axis: int | tuple[int, ...]) -> Any:
    """The array without the given dimensions of size one."""
    return x.tracer.emit("Squeeze", x, _axes(axis)) if isinstance(x, Array) else np.squeeze(x, axis)


def broadcast_to(x: Any, /, shape: Sequence[int]) -> Any:
    """The array stretched to a static shape."""
    return x.tracer.emit("Expand", x, list(shape)) if isinstance(x, Array) else np.broadcast_to(x, tuple(shape))


def concat(arrays: Sequence[Any], /, *, axis: int = 0) -> Any:
    """Arrays joined along an axis."""
    traced = _traced(*arrays)
    if traced is None:
        return np.concatenate(arrays, axis=axis)
    return traced.tracer.emit("Concat", *traced.tracer.promote(*arrays), axis=axis)


def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Any:
    """Arrays joined along a new axis."""
    return concat([expand_dims(x, axis=axis) for x in arrays], axis=axis)


def take(x: Any, indices: Any, /, *, axis: int) -> Any:
    """Elements at the indices along an axis."""
    traced = _traced(x, indices)
    return np.take(x, indices, axis=axis) if traced is None else traced.tracer.emit("Gather", x, indices, axis=axis)


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """Elements picked by an index array of the same rank."""
    traced = _traced(x, indices)
    if traced is None:
        return np.take_along_axis(x, indices, axis=axis)
    return traced.tracer.emit("GatherElements", x, indices, axis=axis)


def top_k(x: Any, /, count: int) -> tuple[Any, Any]:
    """The largest elements of each row, in order, of equal ones the earlier first, and their int64 indices."""
    if isinstance(x, Array):
        found = x.tracer.emit("TopK", x, np.asarray([count], np.int64), outputs=2, axis=-1)
        return found[0], found[1]
    indices = np.argsort(-x, axis=-1, kind="stable")[..., :count]
    return np.take_along_axis(x, indices, axis=-1), indices


def scatter(x: Any, axis: int, indices: Any, values: Any, /) -> Any:
    """A copy of x with the values at the indices along an axis, no index twice."""
    traced = _traced(x, indices, values)
    if traced is not None:
        return traced.tracer.emit("ScatterElements", x, indices, values, axis=axis)
    filled = np.array(x)
    np.put_along_axis(filled, indices, values, axis)
    return filled


def stop_gradient(x: Any, /) -> Any:
    """The same values; reverse mode treats them as constants."""
    return x.tracer.stop_gradient(x) if isinstance(x, Array) else x
