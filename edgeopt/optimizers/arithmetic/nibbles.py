"""Numbers of four bits, two in a byte: how quantized state is kept."""

from __future__ import annotations

from typing import Any

from edgeopt.array_types import Array, Namespace

__all__ = ["pack", "unpack"]


def pack(xp: Namespace, levels: Array) -> Array:
    """Integers from 0 to 15, held in a floating-point array of shape (..., 2n), as uint8 of shape (..., n).

    Byte i has element i in its lower half and element n + i in its upper one, so that no element has to move far.
    """
    *leading, size = levels.shape
    halves = xp.reshape(levels, (*leading, 2, size // 2))
    lower, upper = (xp.squeeze(xp.take(halves, xp.asarray([half]), axis=-2), axis=-2) for half in (0, 1))
    return xp.astype(lower + 16.0 * upper, xp.uint8)


def unpack(xp: Namespace, packed: Array, dtype: Any) -> Array:
    """What `pack` was given, in a floating-point dtype.

    Floating-point arithmetic is exact on a byte, and the runtimes that lack integer division or shifts have it.
    """
    both = xp.astype(packed, dtype)
    upper = xp.floor(both * 0.0625)
    return xp.concat([both - 16.0 * upper, upper], axis=-1)
