"""Products with weights of a few bits, which stay frozen: the gradient goes to what they multiply."""

from __future__ import annotations

import math

import numpy as np

from edgeopt import tracing as xp
from edgeopt.canonical.registry import decomposition
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


def unpacked(packed: Array, bits: int) -> Array:
    """The numbers in bytes along the last axis, the lowest bits first."""
    if bits == 8:
        return packed
    mask = np.uint8(2**bits - 1)
    numbers = [
        op.BitwiseAnd(op.BitShift(packed, np.uint8(shift), direction="RIGHT") if shift else packed, mask)
        for shift in range(0, 8, bits)
    ]
    last = packed.shape[-1]
    count = last * len(numbers) if isinstance(last, int) else None
    interleaved = op.Concat(*(op.Unsqueeze(number, [-1]) for number in numbers), axis=-1)
    shape = [0] * (packed.ndim - 1) + [count if count is not None else -1]
    return op.Reshape(interleaved, shape).with_shape((*packed.shape[:-1], count))


def _n_bits_problem(n: Site) -> str | None:
    if n.has(4):
        return "its rows are grouped by a table"
    if n.attr("weight_prepacked", 0):
        return "its weight is packed for one provider"
    bits = n.attr("bits", 4)
    return None if bits in (2, 4, 8) else f"its weight has {bits} bits"


@decomposition("com.microsoft::MatMulNBits", limits=_n_bits_problem)
def matmul_n_bits(n: Site) -> Array:
    """A matrix of N rows in blocks of few bits, each with a scale and a zero point, times the activation."""
    rows, width, bits = int(n.attr("N")), int(n.attr("K")), int(n.attr("bits", 4))
    block = int(n.attr("block_size"))
    blocks = math.ceil(width / block)
    numbers = unpacked(op.Reshape(n.input(1), [rows, blocks, -1]), bits)
    scales = op.Reshape(n.input(2), [rows, blocks, 1])
    weight = (xp.astype(numbers, scales.dtype) - _zero_points(n, rows, blocks, bits)) * scales
    weight = op.Reshape(weight.with_shape((rows, blocks, block)), [rows, blocks * block])
    if blocks * block != width:
        weight = op.Slice(weight, [0], [width], [1])
    y = op.MatMul(n.x, op.Transpose(weight, perm=[1, 0]))
    return y + n.input(5) if n.has(5) else y


def _zero_points(n: Site, rows: int, blocks: int, bits: int) -> Array:
    dtype = n.input(2).dtype
    if not n.has(3):
        return n.tracer.constant(2 ** (bits - 1), dtype)
    points = n.input(3)
    if points.dtype == np.uint8:
        whole = unpacked(op.Reshape(points, [rows, -1]), bits)
        points = xp.astype(op.Slice(whole, [0], [blocks], [1]), dtype)
    return op.Reshape(points, [rows, blocks, 1])


# The values of four bits, scaled to 1. Source: Dettmers et al., "QLoRA: efficient finetuning of quantized LLMs",
# appendix E, for the second table.
_FP4 = (0.0, 0.00520833333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


@decomposition("com.microsoft::MatMulBnb4")
def matmul_bnb4(n: Site) -> Array:
    """A matrix of four-bit floats, flat, in blocks that share their largest magnitude."""
    rows, width, block = int(n.attr("N")), int(n.attr("K")), int(n.attr("block_size"))
    table = _NF4 if n.attr("quant_type") else (*_FP4, *(-value for value in _FP4))
    packed = op.Reshape(n.input(1), [-1])
    # Here the first number of a byte has its high bits.
    high = op.BitShift(packed, np.uint8(4), direction="RIGHT")
    low = op.BitwiseAnd(packed, np.uint8(15))
    codes = op.Reshape(op.Concat(op.Unsqueeze(high, [1]), op.Unsqueeze(low, [1]), axis=1), [-1])
    values = xp.take(n.tracer.constant(table, n.x.dtype), xp.astype(codes, np.int64), axis=0)
    count, blocks = rows * width, math.ceil(rows * width / block)
    padded = op.Pad(op.Slice(values, [0], [count], [0]), [0, blocks * block - count])
    scaled = op.Reshape(padded, [blocks, block]) * op.Reshape(n.input(2), [blocks, 1])
    weight = op.Reshape(op.Slice(op.Reshape(scaled, [-1]), [0], [count], [0]), [rows, width])
    return op.MatMul(n.x, op.Transpose(weight, perm=[1, 0]) if n.attr("transB", 1) else weight)


def _is_wide(n: Site) -> str | None:
    stored = n.outputs[0] if n.node.op_type == "QuantizeLinear" else n.x
    known = stored.value.dtype is None or stored.dtype.itemsize == 1 or stored.dtype == np.int32
    return None if known else f"its numbers are of type {stored.dtype}, which the target opset does not quantize to"


@decomposition("com.microsoft::QuantizeLinear", "com.microsoft::DequantizeLinear", limits=_is_wide)
def quantization(n: Site) -> Array:
    """The standard domain has them under the same names."""
    axis = n.attr("axis")
    result: Array = n.tracer.emit(n.node.op_type, *n.inputs, **({} if axis is None else {"axis": axis}))
    return result
