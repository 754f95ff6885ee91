"""Dropout: the same mask in both directions."""

from __future__ import annotations

from edgeopt import tracing as xp
from edgeopt.autodiff.registry import rule
from edgeopt.autodiff.site import Site
from edgeopt.tracing import Array


@rule("Dropout")
def dropout(n: Site, g: Array, _mask: Array | None = None) -> Array:
    """In training mode kept elements were scaled by 1 / (1 - ratio); otherwise the operator is the identity."""
    training = n.constant(2) if n.has(2) else None
    if training is None or not bool(training):
        return g
    ratio = xp.astype(n.input(1), g.dtype) if n.has(1) else 0.5
    return g * xp.astype(n.mask(), g.dtype) * (1.0 / (1.0 - ratio))  # type: ignore[no-any-return]
