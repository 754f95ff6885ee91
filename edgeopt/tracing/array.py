"""The array that records: a tensor of the graph under construction, with Python's operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, Union

import ml_dtypes
import numpy as np
import onnx_ir as ir

from edgeopt.errors import TracingError
from edgeopt.tracing import shapes

if TYPE_CHECKING:
    from edgeopt.tracing.tracer import Tracer

__all__ = ["Array", "ArrayLike", "to_ir_dtype", "to_numpy_dtype"]

ArrayLike: TypeAlias = Union["Array", np.ndarray[Any, Any], np.generic, bool, int, float]

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def to_ir_dtype(dtype: Any) -> ir.DataType:
    """The ONNX data type of a numpy dtype."""
    return ir.DataType.from_numpy(np.dtype(dtype))


def to_numpy_dtype(dtype: ir.DataType) -> np.dtype[Any]:
    """The numpy dtype of an ONNX data type."""
    return np.dtype(dtype.numpy())


def _is_one(factor: ArrayLike) -> bool:
    """A factor that changes nothing: besides its cost, ONNX Runtime 1.32 fails to load x · 1.0 · (1.0 / y)."""
    # Not numpy's scalars, which have a type of their own for the product to take on.
    return type(factor) in (int, float) and bool(factor == 1)


class Array:
    """One tensor of a graph under construction.

    It offers what array programs use: `dtype` (numpy's), `shape` (ints, symbol names, or None where unknown), `ndim`
    and the operators. Every operation appends ONNX nodes to the graph of its `tracer`.
    """

    # numpy must hand `ndarray * Array` to Array.__rmul__ instead of building an object array.
    __array_ufunc__ = None
    __slots__ = ("tracer", "value")

    def __init__(self, tracer: Tracer, value: ir.Value) -> None:
        self.tracer = tracer
        self.value = value

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype of the elements."""
        if self.value.dtype is None:
            raise TracingError(f"The type of tensor {self.value.name!r} is not known.")
        return to_numpy_dtype(self.value.dtype)

    @property
    def shape(self) -> shapes.Shape:
        """The dimensions; raises TracingError when not even their number is known."""
        if self.value.shape is None:
            raise TracingError(f"The rank of tensor {self.value.name!r} is not known.")
        return shapes.from_ir(self.value.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def constant(self) -> np.ndarray[Any, Any] | None:
        """The value, where it is a constant of the graph."""
        tensor = ir.convenience.get_const_tensor(self.value)
        return None if tensor is None else tensor.numpy()

    def with_shape(self, shape: shapes.Shape) -> Array:
        """This array, with dimensions written down that inference could not see."""
        self.value.shape = shapes.to_ir(shape)
        return self

    def __repr__(self) -> str:
        return f"Array({self.value.name!r}, {self.dtype.name}, {list(self.shape)})"

    def __bool__(self) -> bool:
        raise TracingError("An array of a graph has no truth value while it is traced; use `xp.where`.")

    def __iter__(self) -> Any:
        raise TracingError("An array of a graph cannot be iterated over while it is traced.")

    def _binary(self, op: str, other: ArrayLike, reverse: bool = False) -> Array:
        left, right = self.tracer.promote(self, other)
        return self.tracer.emit(op, right, left) if reverse else self.tracer.emit(op, left, right)

    def __add__(self, other: ArrayLike) -> Array:
        return self._binary("Add", other)

    def __radd__(self, other: ArrayLike) -> Array:
        return self._binary("Add", other, reverse=True)

    def __sub__(self, other: ArrayLike) -> Array:
        return self._binary("Sub", other)

    def __rsub__(self, other: ArrayLike) -> Array:
        return self._binary("Sub", other, reverse=True)

    def __mul__(self, other: ArrayLike) -> Array:
        return self if _is_one(other) else self._binary("Mul", other)

    def __rmul__(self, other: ArrayLike) -> Array:
        return self if _is_one(other) else self._binary("Mul", other, reverse=True)

    def __truediv__(self, other: ArrayLike) -> Array:
        return self if _is_one(other) else self._binary("Div", other)

    def __rtruediv__(self, other: ArrayLike) -> Array:
        return self._binary("Div", other, reverse=True)

    def __pow__(self, other: ArrayLike) -> Array:
        # Squaring is by far the commonest power, and a product is exact and fast on every provider.
        if isinstance(other, (int, float)) and other == 2:
            return self * self
        return self._binary("Pow", other)

    def __rpow__(self, other: ArrayLike) -> Array:
        return self._binary("Pow", other, reverse=True)

    def __neg__(self) -> Array:
        return self.tracer.emit("Neg", self)

    def __matmul__(self, other: ArrayLike) -> Array:
        return self._binary("MatMul", other)

    def __invert__(self) -> Array:
        return self.tracer.emit("Not", self)

    def __and__(self, other: ArrayLike) -> Array:
        return self._binary("And", other)

    def __or__(self, other: ArrayLike) -> Array:
        return self._binary("Or", other)

    def __lt__(self, other: ArrayLike) -> Array:
        return self._binary("Less", other)

    def __le__(self, other: ArrayLike) -> Array:
        return self._binary("LessOrEqual", other)

    def __gt__(self, other: ArrayLike) -> Array:
        return self._binary("Greater", other)

    def __ge__(self, other: ArrayLike) -> Array:
        return self._binary("GreaterOrEqual", other)

    def __eq__(self, other: ArrayLike) -> Array:  # type: ignore[override]  # elementwise, as in every array library
        return self._binary("Equal", other)

    def __ne__(self, other: ArrayLike) -> Array:  # type: ignore[override]  # elementwise, as in every array library
        return ~self._binary("Equal", other)

    __hash__ = None  # type: ignore[assignment]  # elementwise equality and hashing exclude each other
