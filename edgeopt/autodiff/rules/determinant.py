"""Determinants."""

from __future__ import annotations

from edgeopt.autodiff.arrays import transpose_last
from edgeopt.autodiff.registry import rule
from edgeopt.tracing import Array, op
from edgeopt.tracing.matrices import adjugate
from edgeopt.tracing.site import Site

# Beyond, rounding takes over: the adjugate is a polynomial of this degree in the elements.
LARGEST = 16


def _problem(n: Site) -> str | None:
    size = n.x.shape[-1]
    if not isinstance(size, int):
        return "the size of its matrix is not known before the run"
    return f"its matrix has {size} rows; up to {LARGEST} are differentiated" if size > LARGEST else None


@rule("Det", limits=_problem)
def det(n: Site, g: Array) -> Array:
    """The cofactors, which are right for singular matrices too."""
    adjoint, _ = adjugate(n.x, _size(n))
    return transpose_last(adjoint) * op.Unsqueeze(g, [-2, -1])


def _size(n: Site) -> int:
    size = n.x.shape[-1]
    return size if isinstance(size, int) else 0
