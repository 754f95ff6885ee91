"""Upsample and the early forms of Resize."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeopt.canonical.older.editing import rewritten
from edgeopt.canonical.registry import adapter
from edgeopt.errors import UnsupportedModelError
from edgeopt.tracing import Array
from edgeopt.tracing.site import Site

# What Upsample and the first Resize did without saying so: output pixel i came from input pixel floor(i / scale).
_FIRST: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


@adapter("Upsample", before=10)
def upsample(n: Site) -> tuple[Array, ...]:
    """Resize by scales, which were an attribute before opset 9."""
    scales = n.inputs[1] if n.has(1) else n.tracer.constant(np.asarray(n.attr("scales"), np.float32))
    return rewritten(n, n.x, None, scales, op_type="Resize", without=("scales",), **_FIRST)


@adapter("Resize", before=11)
def first_resize(n: Site) -> tuple[Array, ...]:
    """Resize of opset 10: the data and the scales."""
    return rewritten(n, n.x, None, n.input(1), **_FIRST)


@adapter("Resize", before=13)
def resize(n: Site) -> tuple[Array, ...]:
    """Inputs that were there but empty may be left out since opset 13, and one coordinate mode is gone."""
    changed: dict[str, Any] = {}
    if n.attr("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        # (i + 0.5) / scale without the half pixel that is taken off elsewhere: its floor rounds what half_pixel says.
        if n.attr("mode", "nearest") != "nearest" or n.attr("nearest_mode", "round_prefer_floor") != "floor":
            raise UnsupportedModelError(f"{n}: ONNX has dropped the coordinate mode tf_half_pixel_for_nn in opset 13.")
        changed = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}
    return rewritten(n, n.x, *(_unless_empty(n, position) for position in (1, 2, 3)), **changed)


def _unless_empty(n: Site, position: int) -> Array | None:
    known = n.constant(position)
    empty = not n.has(position) or (known is not None and known.size == 0)
    return None if empty else n.input(position)
