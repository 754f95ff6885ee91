"""Operators whose attributes have become inputs, or have been renamed."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgeopt.canonical.older.editing import rewritten
from edgeopt.canonical.registry import adapter
from edgeopt.tracing import Array
from edgeopt.tracing.site import Site

_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSumSquare",
)  # fmt: skip


def _int64(n: Site, value: int | tuple[int, ...]) -> Array:
    return n.tracer.constant(np.asarray(value, np.int64))


@adapter("ReduceSum", "Squeeze", "Unsqueeze", before=13)
@adapter(*_REDUCTIONS, before=18)
def axes(n: Site) -> tuple[Array, ...]:
    """`axes` became the second input."""
    given = n.attr("axes")
    inputs = (n.inputs[0],) if given is None else (n.inputs[0], _int64(n, tuple(given)))
    return rewritten(n, *inputs, without=("axes",))


@adapter("Split", before=18)
def split(n: Site) -> tuple[Array, ...]:
    """`split` became the second input; without it, the number of outputs is an attribute."""
    if n.has(1):
        return rewritten(n, *n.inputs)
    sizes = n.attr("split")
    if sizes is None:
        return rewritten(n, n.x, num_outputs=len(n.node.outputs))
    return rewritten(n, n.x, _int64(n, tuple(sizes)), without=("split",))


@adapter("Slice", before=10)
def slice_(n: Site) -> tuple[Array, ...]:
    """`starts`, `ends` and `axes` became inputs."""
    starts, ends = tuple(n.attr("starts")), tuple(n.attr("ends"))
    chosen = tuple(n.attr("axes", range(len(starts))))
    inputs = (n.x, *(_int64(n, values) for values in (starts, ends, chosen)))
    return rewritten(n, *inputs, without=("starts", "ends", "axes"))


@adapter("TopK", before=10)
def top_k(n: Site) -> tuple[Array, ...]:
    """`k` became the second input."""
    return rewritten(n, n.x, _int64(n, (int(n.attr("k")),)), without=("k",))


@adapter("Pad", before=11, typed=True)
def pad(n: Site) -> tuple[Array, ...]:
    """`pads` and `value` became inputs, and the value has the type of the data."""
    pads, value = _int64(n, tuple(n.attr("pads"))), float(n.attr("value", 0.0))
    fill = n.tracer.constant(value, n.x.dtype) if value else None
    return rewritten(n, n.x, pads, fill, without=("pads", "value"))


@adapter("Clip", before=11, typed=True)
def clip(n: Site) -> tuple[Array, ...]:
    """`min` and `max` became inputs; their defaults were the largest floats."""
    bounds = [None if (bound := n.attr(name)) is None else _bound(n, bound) for name in ("min", "max")]
    return rewritten(n, n.x, *bounds, without=("min", "max"))


def _bound(n: Site, value: float) -> Array:
    return n.tracer.constant(float(value), n.x.dtype)


@adapter("Dropout", before=12)
def dropout(n: Site) -> tuple[Array, ...]:
    """`ratio` became an input; from opset 12 on the mask is boolean, and a third input switches training on."""
    if n.node.outputs[1:] and n.node.outputs[1].type is not None:
        n.node.outputs[1].type = ir.TensorType(ir.DataType.BOOL)
    ratio = n.tracer.constant(np.float32(n.number("ratio", 0.5)))
    return rewritten(n, n.x, ratio, without=("ratio",))


@adapter("Scatter", before=11)
def scatter(n: Site) -> tuple[Array, ...]:
    """Scatter is called ScatterElements since opset 11."""
    return rewritten(n, *n.inputs, op_type="ScatterElements")


@adapter("DFT", before=20)
def dft(n: Site) -> tuple[Array, ...]:
    """`axis` became the third input, and its default changed from 1 to -2."""
    length = n.inputs[1] if n.has(1) else None
    return rewritten(n, n.x, length, _int64(n, int(n.attr("axis", 1))), without=("axis",))


_MODES = {"bilinear": "linear", "bicubic": "cubic"}


@adapter("GridSample", before=20)
def grid_sample(n: Site) -> tuple[Array, ...]:
    """The modes are named without the dimension since opset 20."""
    mode = n.attr("mode", "bilinear")
    return rewritten(n, *n.inputs, mode=_MODES.get(mode, mode))


@adapter("RoiAlign", before=16)
def roi_align(n: Site) -> tuple[Array, ...]:
    """Regions were not shifted by half a pixel."""
    return rewritten(n, *n.inputs, coordinate_transformation_mode="output_half_pixel")
