"""Resize: a linear map along each axis, whose adjoint is the transposed map.

The maps are matrices of constants, read off the operator's own definition: onnx's reference evaluator resizes an
identity matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.helper
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from edgeopt.autodiff.registry import rule
from edgeopt.tracing import OPSET, Array, op
from edgeopt.tracing.shapes import same_dim
from edgeopt.tracing.site import Site

# What decides how an axis is resized; the rest concerns several axes, or regions.
_MODES = ("antialias", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside", "mode", "nearest_mode")


def scales_of(n: Site) -> dict[int, float] | None:
    """By how much each axis grows, where it does; None where that is not known before the run."""
    axes = [axis % n.x.ndim for axis in n.attr("axes", range(n.x.ndim))]
    given = n.constant(2) if n.has(2) else None
    if given is not None and given.size:
        return {axis: float(scale) for axis, scale in zip(axes, given, strict=True) if scale != 1}
    scales = {}
    for axis, (before, after) in enumerate(zip(n.x.shape, n.y.shape, strict=True)):
        if same_dim(before, after):
            continue
        if not isinstance(before, int) or not isinstance(after, int):
            return None
        scales[axis] = after / before
    return scales


def _definition(n: Site, size: int, scale: float) -> NDArray[np.float32]:
    """The matrix (after, before) of one axis."""
    attributes = {name: n.attr(name) for name in _MODES if n.attr(name) is not None}
    node = onnx.helper.make_node("Resize", ["x", "", "scales"], ["y"], **attributes)
    kinds = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("x", "scales", "y")]
    graph = onnx.helper.make_graph([node], "resize", kinds[:2], kinds[2:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)])
    columns = []
    # One column of the identity at a time: the evaluator treats any other axis as one to be resized too.
    for unit in np.eye(size, dtype=np.float32):
        feeds: dict[str, Any] = {"x": unit, "scales": np.asarray([scale], np.float32)}
        outputs: Any = ReferenceEvaluator(model).run(None, feeds)
        columns.append(outputs[0])
    return np.stack(columns, axis=1)


def axis_map(n: Site, axis: int, scale: float) -> NDArray[np.float32] | None:
    """The matrix of an axis, None where its size is not known."""
    size = n.x.shape[axis]
    return _definition(n, size, scale) if isinstance(size, int) else None


def along(x: Array, axis: int, matrix: NDArray[Any]) -> Array:
    """A matrix applied to an axis."""
    if axis == x.ndim - 2:
        return op.MatMul(matrix.astype(x.dtype), x)
    if axis == x.ndim - 1:
        return op.MatMul(x, np.ascontiguousarray(matrix.T.astype(x.dtype)))
    order = [*(i for i in range(x.ndim) if i != axis), axis]
    product = along(op.Transpose(x, perm=order), x.ndim - 1, matrix)
    return op.Transpose(product, perm=[int(i) for i in np.argsort(order)])


def _repeats(n: Site, scale: float) -> bool:
    """Whether each element is repeated, `scale` times; what holds for four elements holds for any number."""
    if n.attr("mode", "nearest") != "nearest" or scale != int(scale):
        return False
    return np.array_equal(_definition(n, 4, scale), np.repeat(np.eye(4), int(scale), axis=0))


def _problem(n: Site) -> str | None:
    if n.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        return "it crops"
    if n.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        return "it keeps an aspect ratio"
    scales = scales_of(n)
    known = scales is not None and all(
        isinstance(n.x.shape[axis], int) or _repeats(n, scale) for axis, scale in scales.items()
    )
    return None if known else "a size that it changes is not known before the run"


@rule("Resize", limits=_problem)
def resize(n: Site, g: Array) -> Array:
    """Repeated elements are added up by pooling, everything else goes through the transposed matrices."""
    scales = scales_of(n) or {}
    if min(scales, default=2) >= 2 and all(_repeats(n, scale) for scale in scales.values()):
        window = [int(scales.get(axis, 1)) for axis in range(2, n.x.ndim)]
        average = op.AveragePool(g, kernel_shape=window, strides=window)
        return (average * float(np.prod(window))).with_shape(n.x.shape)
    for axis, scale in scales.items():
        matrix = axis_map(n, axis, scale)
        if matrix is None:
            raise LookupError(f"The size of axis {axis} of {n} is not known.")
        g = along(g, axis, matrix.T)
    return g.with_shape(n.x.shape)
