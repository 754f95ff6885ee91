"""A Split whose outputs are not all read: slices of those that are.

From the second run on, ONNX Runtime 1.17 and 1.18 give a tensor that nobody reads the memory of one in use.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from edgeopt.lowering.registry import lowering
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


def _bounds(n: Site) -> list[int] | None:
    """Where the pieces begin and end, if that is known."""
    sizes = n.constant(1)
    if sizes is not None:
        lengths = [int(size) for size in sizes]
    else:
        length = n.x.shape[n.attr("axis", 0)]
        if n.has(1) or not isinstance(length, int):
            return None
        count = len(n.outputs)
        piece = -(-length // count)
        lengths = [piece] * (count - 1) + [length - piece * (count - 1)]
    return [0, *accumulate(lengths)]


def _is_unread(array: Array) -> bool:
    return not array.value.uses() and not array.value.is_graph_output()


@lowering("Split", when=lambda n: any(map(_is_unread, n.outputs)) and _bounds(n) is not None)
def split_in_part(n: Site) -> list[Array]:
    """An unread output gets what any other one gets; nobody will know."""
    bounds = _bounds(n) or []
    axis = np.asarray([n.attr("axis", 0)], np.int64)
    pieces = [
        None if _is_unread(output) else op.Slice(n.x, [first], [last], axis)
        for output, first, last in zip(n.outputs, bounds, bounds[1:], strict=False)
    ]
    return [n.x if piece is None else piece for piece in pieces]
