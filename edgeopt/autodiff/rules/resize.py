"""Resize: a linear map along each axis, whose adjoint is the transposed map.

The matrix of an axis is what the operator makes of the identity matrix, so it is right by construction for every mode,
and for the rounding of the runtime that computes both. It is made in the graph, where runtimes compute what is constant
once, when they load it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.registry import rule
from edgeopt.tracing import Array, op
from edgeopt.tracing.shapes import same_dim
from edgeopt.tracing.site import Site

# What decides how an axis is resized; the rest concerns several axes, or what lies outside.
_MODES = ("antialias", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside", "mode", "nearest_mode")


def _crops(n: Site) -> bool:
    return bool(n.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize")


def _keeps_aspect_ratio(n: Site) -> bool:
    # With corners aligned, the sizes alone decide where elements are read.
    aligned = n.attr("coordinate_transformation_mode", "half_pixel") in ("align_corners", "tf_crop_and_resize")
    return n.has(3) and n.attr("keep_aspect_ratio_policy", "stretch") != "stretch" and not aligned


def axes_of(n: Site) -> list[int]:
    """The axes that scales, sizes and regions are given for."""
    return [int(axis) % n.x.ndim for axis in n.attr("axes", range(n.x.ndim))]


def _resized_axes(n: Site) -> dict[int, int]:
    """The axes that change, or may change, with their places in the operator's inputs."""
    scales = n.constant(2) if n.has(2) else None
    result = {}
    for place, axis in enumerate(axes_of(n)):
        if scales is not None and scales.size:
            stays = float(scales[place]) == 1
        else:
            stays = n.has(3) and same_dim(n.x.shape[axis], n.y.shape[axis])
        if _crops(n):
            roi = n.constant(1)
            # Begins of all axes, then ends of all axes.
            stays = stays and roi is not None and list(roi[place :: roi.size // 2]) == [0, 1]
        if not stays:
            result[axis] = place
    return result


def matrices(n: Site) -> dict[int, Array]:
    """The matrix (after, before) of each axis that may change."""
    return {axis: xp.astype(_matrix(n, axis, place), n.x.dtype) for axis, place in _resized_axes(n).items()}


def _matrix(n: Site, axis: int, place: int) -> Array:
    dim = n.x.shape[axis]
    size = np.full(2, dim, np.int64) if isinstance(dim, int) else op.Expand(_size(n.x, axis), [2])
    identity = op.EyeLike(op.ConstantOfShape(n.tracer.constant(size)))
    how = {name: n.attr(name) for name in _MODES if n.attr(name) is not None}
    if _keeps_aspect_ratio(n):
        return _matrix_by_scale(n, axis, identity, _common_scale(n), how)
    scales = sizes = roi = None
    if n.has(2):
        scales = op.Gather(n.input(2), [place])
    elif n.attr("keep_aspect_ratio_policy", "stretch") == "stretch":
        sizes = op.Gather(n.input(3), [place])
    else:
        sizes = _size_at_common_scale(n, axis)
    if _crops(n):
        roi = op.Gather(xp.astype(n.input(1), np.float32), [place, place + len(axes_of(n))])
    return _resized(identity, roi, scales, sizes, how)


def _size(x: Array, axis: int) -> Array:
    return op.Shape(x, start=axis, end=axis + 1)


def _resized(matrix: Array, roi: Array | None, scales: Array | None, sizes: Any, how: dict[str, Any]) -> Array:
    """Along its first axis; as an image, since ONNX Runtime 1.17 fails to resize a matrix with antialias."""
    image = op.Unsqueeze(matrix, [0, 1])
    return op.Squeeze(op.Resize(image, roi, scales, sizes, axes=[2], **how), [0, 1])


def _common_scale(n: Site) -> Array:
    """By how much all axes grow where they keep their aspect ratio."""
    before = op.Gather(op.Shape(n.x), axes_of(n))
    ratios = xp.astype(n.input(3), np.float32) / xp.astype(before, np.float32)
    smaller = n.attr("keep_aspect_ratio_policy") == "not_larger"
    return (op.ReduceMin if smaller else op.ReduceMax)(ratios, keepdims=1)


def _size_at_common_scale(n: Site, axis: int) -> Any:
    """Not by asking the output: where this takes the operator's place there is none yet."""
    size = n.y.shape[axis]
    if isinstance(size, int):
        return np.asarray([size])
    return xp.astype(op.Floor(xp.astype(_size(n.x, axis), np.float32) * _common_scale(n) + 0.5), np.int64)


def _matrix_by_scale(n: Site, axis: int, identity: Array, scale: Array, how: dict[str, Any]) -> Array:
    """Sizes are rounded under an aspect ratio and cut off for a scale: repeat the last element, and cut off after."""
    more = xp.astype(op.Ceil(1.0 / scale), np.int64)
    none = np.zeros(1, np.int64)
    longer = op.Pad(identity, op.Concat(none, none, more, none, axis=0), mode="edge")
    return op.Slice(_resized(longer, None, scale, None, how), [0], _size_at_common_scale(n, axis), [0])


def along(x: Array, axis: int, matrix: Array, *, transposed: bool) -> Array:
    """A matrix, or its transpose, applied to an axis."""
    if axis == x.ndim - 2:
        return op.MatMul(op.Transpose(matrix, perm=[1, 0]) if transposed else matrix, x)
    if axis == x.ndim - 1:
        return op.MatMul(x, matrix if transposed else op.Transpose(matrix, perm=[1, 0]))
    order = [*(i for i in range(x.ndim) if i != axis), axis]
    product = along(op.Transpose(x, perm=order), x.ndim - 1, matrix, transposed=transposed)
    return op.Transpose(product, perm=[int(i) for i in np.argsort(order)])


def _repeats(n: Site, scale: float) -> bool:
    """Whether each element is repeated, `scale` times; what holds for the copies of the first holds for all."""
    if scale != int(scale) or scale < 1 or n.attr("mode", "nearest") != "nearest" or n.attr("antialias", 0):
        return False
    coordinates = n.attr("coordinate_transformation_mode", "half_pixel")
    if coordinates in ("align_corners", "tf_crop_and_resize"):
        return False
    copies = np.arange(2 * int(scale))
    read = copies / scale if coordinates == "asymmetric" else (copies + 0.5) / scale - 0.5
    nearest: Any = {
        "round_prefer_floor": lambda c: np.ceil(c - 0.5),
        "round_prefer_ceil": lambda c: np.floor(c + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }[n.attr("nearest_mode", "round_prefer_floor")]
    return np.array_equal(np.maximum(nearest(read), 0), copies // int(scale))


def _repetitions(n: Site) -> list[int] | None:
    """How often each element is repeated along each spatial axis, where that is all that happens."""
    scales = n.constant(2) if n.has(2) else None
    if scales is None or not scales.size:
        pairs = [(n.x.shape[axis], n.y.shape[axis]) for axis in axes_of(n)]
        if not all(same_dim(b, a) or (isinstance(b, int) and isinstance(a, int) and b) for b, a in pairs):
            return None
        scales = np.asarray([1.0 if same_dim(b, a) else int(a or 0) / int(b or 1) for b, a in pairs])
    by_axis = dict(zip(axes_of(n), scales.tolist(), strict=True))
    if _keeps_aspect_ratio(n) or any(
        scale != 1 and (axis < 2 or not _repeats(n, scale)) for axis, scale in by_axis.items()
    ):
        return None
    return [int(by_axis.get(axis, 1)) for axis in range(2, n.x.ndim)]


def resize_problem(n: Site) -> str | None:
    """Why the matrices of a node are not known, None where they are."""
    if not _keeps_aspect_ratio(n):
        return None
    coordinates = n.attr("coordinate_transformation_mode", "half_pixel")
    plain = (
        coordinates in ("half_pixel", "asymmetric") and not n.attr("exclude_outside", 0) and not n.attr("antialias", 0)
    )
    return None if plain else f"it keeps an aspect ratio, with antialias, exclude_outside or {coordinates}"


@rule("Resize", limits=resize_problem)
def resize(n: Site, g: Array) -> Array:
    """Repeated elements are added up by pooling, everything else goes through the transposed matrices."""
    window = _repetitions(n)
    if window is not None and max(window, default=1) > 1:
        average = op.AveragePool(g, kernel_shape=window, strides=window)
        return (average * float(math.prod(window))).with_shape(n.x.shape)
    for axis, matrix in matrices(n).items():
        g = along(g, axis, matrix, transposed=True)
    return g.with_shape(n.x.shape)
