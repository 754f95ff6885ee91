"""Normalisation of each element by its neighbours in the next channels."""

from __future__ import annotations

from edgeopt.autodiff.arrays import reshape_like
from edgeopt.autodiff.definitions import by_definition
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


@by_definition("LRN")
def local_response_normalization(n: Site) -> Array:
    """x / (bias + alpha/size Σ x²)^beta, the sum over `size` neighbouring channels: an average pooling of channels."""
    x, size = n.x, n.attr("size")
    before = (size - 1) // 2
    channels = x.shape[1]
    if isinstance(channels, int):
        images = op.Reshape(x * x, [0, 1, channels, -1])
    else:
        images = op.Reshape(x * x, op.Concat([0, 1], op.Shape(x, start=1, end=2), [-1], axis=0))
    pads = [before, 0, size - 1 - before, 0]
    mean = op.AveragePool(images, kernel_shape=[size, 1], pads=pads, count_include_pad=1)
    base = reshape_like(mean, x) * n.number("alpha", 1e-4) + n.number("bias", 1.0)
    return x * base ** -n.number("beta", 0.75)
