"""Dropout: the same mask in both directions."""

from __future__ import annotations

from typing import Any

from edgeopt import tracing as xp
from edgeopt.autodiff.registry import rule
from edgeopt.tracing import Array
from edgeopt.tracing.site import Site


def scaled_mask(n: Site, mask: Array) -> Array:
    """What Dropout multiplies by: 1 / (1 - ratio) where an element is kept, 0 elsewhere (everywhere if ratio is 1).

    Forward and backward multiply by the same tensor, so it is computed once.
    """
    known = n.constant(1) if n.has(1) else 0.5
    scale: Any
    if known is None:
        kept = 1.0 - xp.astype(n.input(1), xp.float64)
        nothing = kept <= 0.0
        scale = xp.astype(xp.where(nothing, 0.0, 1.0 / xp.where(nothing, 1.0, kept)), n.x.dtype)
    else:
        scale = 0.0 if float(known) >= 1.0 else 1.0 / (1.0 - float(known))
    factor: Array = xp.astype(mask, n.x.dtype) * scale
    return factor


def _is_undecided(n: Site) -> str | None:
    decided = not n.has(2) or n.constant(2) is not None
    return None if decided else "whether it is in training mode is not known before the run"


@rule("Dropout", limits=_is_undecided)
def dropout(n: Site, g: Array, _mask: Array | None = None) -> Array:
    """In training mode kept elements were scaled by 1 / (1 - ratio); otherwise the operator is the identity."""
    training = n.constant(2) if n.has(2) else None
    if training is None or not bool(training):
        return g
    return g * scaled_mask(n, n.mask())
