"""Resize where runtimes have no kernel: the same matrices as in its gradient."""

from __future__ import annotations

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.rules.resize import along, axes_of, matrices, resize_problem
from edgeopt.lowering.registry import is_double, lowering
from edgeopt.tracing import Array, op
from edgeopt.tracing.shapes import same_dim
from edgeopt.tracing.site import Site


def _lacks_kernel(n: Site) -> bool:
    if resize_problem(n) is not None:
        return False
    return is_double(n) or not _has_kernel(n)


def _has_kernel(n: Site) -> bool:
    """ONNX Runtime interpolates along the axes of an image, in front of or behind its channels, or of a volume."""
    mode, rank = n.attr("mode", "nearest"), n.x.ndim
    if mode == "nearest":
        return True
    changed = {axis for axis in axes_of(n) if not same_dim(n.x.shape[axis], n.y.shape[axis])}
    image = rank == 2 or (rank == 4 and (changed <= {2, 3} or changed <= {1, 2}))
    return image or (mode == "linear" and (rank == 3 or (rank == 5 and changed <= {2, 3, 4})))


@lowering("Resize", when=_lacks_kernel)
def resize(n: Site) -> Array:
    """Axis by axis; what lies outside of a cropped region takes the extrapolation value."""
    y, outside = n.x, n.number("extrapolation_value", 0.0)
    inside: Array | None = None
    for axis, matrix in matrices(n).items():
        y = along(y, axis, matrix, transposed=False)
        # The weights of an element sum to one, or to zero outside.
        total = op.ReduceSum(matrix, [1], keepdims=0)
        others = [i for i in range(n.x.ndim) if i != axis]
        mask = op.Unsqueeze(total, others) if others else total
        inside = mask if inside is None else inside * mask
    crops = n.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    if outside and crops and inside is not None:
        y = y + (np.ones((), n.x.dtype) - inside) * outside
    return xp.astype(y, n.x.dtype).with_shape(n.y.shape)
