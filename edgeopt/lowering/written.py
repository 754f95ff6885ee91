"""What was written over a tensor, once reverse mode no longer has to know what it was before."""

from __future__ import annotations

from edgeopt.lowering.registry import lowering
from edgeopt.tracing import Array
from edgeopt.tracing.marks import WRITTEN
from edgeopt.tracing.site import Site


def _is_written(n: Site) -> bool:
    return WRITTEN in n.node.metadata_props


@lowering("Where", when=_is_written)
def written(n: Site) -> Array:
    """The new values."""
    return n.input(2)
