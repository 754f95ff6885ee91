"""Python's numbers as constants of full precision.

torch's exporter makes float32 constants of them and casts these to float64, so that 0.3 becomes 0.300000012 in a model
of doubles. Here a number is a double until the tensor's own type is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import onnx
import onnx_ir as ir
import torch
from onnxscript import opset18
from onnxscript.values import Op

__all__ = ["TRANSLATIONS", "constant", "exact_casts", "like", "sizes"]

# Its type variables demand a type for each traced value, which translations do not have.
op: Any = opset18

_COMPLEX = {ir.DataType.COMPLEX64: ir.DataType.FLOAT, ir.DataType.COMPLEX128: ir.DataType.DOUBLE}


def constant(value: Any, dtype: int) -> Any:
    """A Python number, or nested lists of them, as a constant of an element type; complex ones as pairs."""
    kind = ir.DataType(dtype)
    if kind in _COMPLEX:
        number = complex(value)
        return op.Constant(value=ir.tensor([number.real, number.imag], dtype=_COMPLEX[kind]))
    if kind == ir.DataType.BOOL:
        value = bool(value)
    elif kind.is_integer():
        value = int(value)
    return op.Constant(value=ir.tensor(value, dtype=kind))


def like(value: Any, array: Any) -> Any:
    """A number in the element type of an array, which need not be known."""
    if array.dtype is not None:
        return constant(value, array.dtype)
    wide = onnx.helper.make_tensor("value", onnx.TensorProto.DOUBLE, [], [value])
    return op.CastLike(op.Constant(value=wide), array)


def sizes(parts: Any) -> Any:
    """A shape as one tensor; its parts are ints, or values where they are symbolic."""
    if isinstance(parts, ir.Value):
        return parts
    if all(isinstance(part, int) for part in parts):
        return op.Constant(value_ints=list(parts))
    one = op.Constant(value_ints=[1])
    columns = [
        op.Constant(value_ints=[part]) if isinstance(part, int) else op.Reshape(op.Cast(part, to=7), one)
        for part in parts
    ]
    return columns[0] if len(columns) == 1 else op.Concat(*columns, axis=0)


@contextmanager
def exact_casts() -> Iterator[None]:
    """Within it, a Python float that a translation casts is cast from a double, not from a float32.

    All of torch's translations bring their numbers into the type of a tensor that way.
    """
    original = Op.__call__

    def call(self: Op, *args: Any, **kwargs: Any) -> Any:
        if self.name in ("Cast", "CastLike") and args and isinstance(args[0], float):
            wide = onnx.helper.make_tensor("value", onnx.TensorProto.DOUBLE, [], [args[0]])
            args = (op.Constant(value=wide), *args[1:])
        return original(self, *args, **kwargs)  # type: ignore[no-untyped-call]  # it has no annotations

    Op.__call__ = call  # type: ignore[method-assign]  # for the while
    try:
        yield
    finally:
        Op.__call__ = original  # type: ignore[method-assign]  # see above


def _number(value: Any, dtype: int) -> Any:
    """A number of the model's input sizes is a value already."""
    return op.Cast(value, to=dtype) if isinstance(value, ir.Value) else constant(value, dtype)


def _type_of(value: Any) -> int:
    """The element type that torch infers from a Python number."""
    if isinstance(value, bool):
        return ir.DataType.BOOL
    if isinstance(value, int):
        return ir.DataType.INT64
    if isinstance(value, complex):
        return ir.DataType.COMPLEX64 if torch.get_default_dtype() == torch.float32 else ir.DataType.COMPLEX128
    return ir.DataType.FLOAT if torch.get_default_dtype() == torch.float32 else ir.DataType.DOUBLE


def _scalar_tensor(s: Any, dtype: int = -1, **_placement: Any) -> Any:
    """`aten::scalar_tensor`."""
    return _number(s, _type_of(0.0) if dtype == -1 else dtype)


def _full(size: Sequence[Any], fill_value: Any, dtype: Any = -1, **_placement: Any) -> Any:
    """`aten::full`."""
    if dtype == -1:
        dtype = fill_value.dtype if isinstance(fill_value, ir.Value) else _type_of(fill_value)
    return op.Expand(_number(fill_value, dtype), sizes(size))


def _full_like(self: Any, fill_value: Any, dtype: int = -1, **_placement: Any) -> Any:
    """`aten::full_like`."""
    return op.Expand(_number(fill_value, self.dtype if dtype == -1 else dtype), op.Shape(self))


def _new_full(self: Any, size: Sequence[Any], fill_value: Any, dtype: int = -1, **_placement: Any) -> Any:
    """`aten::new_full`."""
    return op.Expand(_number(fill_value, self.dtype if dtype == -1 else dtype), sizes(size))


def _logarithm(base: float, self: Any) -> Any:
    """`aten::log2` and `aten::log10`: torch's translation takes the base's logarithm in float32."""
    return op.Mul(op.Log(self), like(1.0 / math.log(base), self))


TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.scalar_tensor.default: _scalar_tensor,
    torch.ops.aten.full.default: _full,
    torch.ops.aten.full_like.default: _full_like,
    torch.ops.aten.new_full.default: _new_full,
    torch.ops.aten.log2.default: partial(_logarithm, 2.0),
    torch.ops.aten.log10.default: partial(_logarithm, 10.0),
}
