"""What happens at some updates only."""

from __future__ import annotations

from edgeopt.array_types import Array, Namespace

__all__ = ["is_multiple", "kept_unless", "starts_period"]


def is_multiple(xp: Namespace, number: Array, of: int) -> Array:
    """Whether a 0-d integer is a multiple of another."""
    exact = xp.astype(number, xp.float64)
    return exact == xp.floor(exact / of) * of


def starts_period(xp: Namespace, step: Array, every: int) -> Array:
    """Whether the step is 1, 1 + every, 1 + 2·every and so on."""
    return is_multiple(xp, step - 1, every)


def kept_unless(xp: Namespace, due: Array | None, new: Array, kept: Array) -> Array:
    """The new array when it is due, always if there is no such condition, and the kept one otherwise."""
    return new if due is None else xp.where(due, new, kept)
