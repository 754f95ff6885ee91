"""Writing into the caches of language models (opset 24)."""

from __future__ import annotations

import numpy as np

from edgeopt.canonical.registry import decomposition
from edgeopt.tracing import Array, op
from edgeopt.tracing.axes import positions
from edgeopt.tracing.site import Site


@decomposition("TensorScatter")
def tensor_scatter(n: Site) -> Array:
    """Each sample's slice is written from its own index on, around the end where the cache is circular."""
    cache, update = n.x, n.input(1)
    axis = n.attr("axis", -2) % cache.ndim
    order = [0, axis, *(i for i in range(1, cache.ndim) if i != axis)]
    front, written = (op.Transpose(x, perm=order) for x in (cache, update))
    # (batch, sequence, 2): the sample, and the place in its cache.
    places = op.Unsqueeze(positions(written, 1), [0])
    if n.has(2):
        places = places + op.Unsqueeze(n.input(2), [1])
    if n.attr("mode", "linear") == "circular":
        places = op.Mod(places, op.Shape(front, start=1, end=2))
    shape = op.Shape(written, start=0, end=2)
    samples = op.Expand(op.Unsqueeze(positions(written, 0), [1]), shape)
    points = op.Concat(op.Unsqueeze(samples, [2]), op.Unsqueeze(op.Expand(places, shape), [2]), axis=2)
    result = op.ScatterND(front, points.with_shape((*written.shape[:2], 2)), written).with_shape(front.shape)
    return op.Transpose(result, perm=[int(i) for i in np.argsort(order)])
