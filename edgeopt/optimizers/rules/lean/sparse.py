"""Rules for embeddings, of which an update touches few rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace
from edgeopt.optimizers.base import Arrays, Optimizer, Updated, zeros
from edgeopt.optimizers.rules.adaptive.adam import Adam
from edgeopt.optimizers.rules.sgd.sgd import SGD

__all__ = ["LazyAdam", "SparseAdam", "SparseSGD"]


def _any(xp: Namespace, grad: Array, axes: tuple[int, ...]) -> Array:
    """Whether an element differs from zero; the axes stay, with length 1."""
    differs = xp.not_equal(grad, xp.zeros_like(grad))
    return xp.any(differs, axis=axes, keepdims=True) if axes else differs


class _Rows(Optimizer):
    """A rule, but rows of the parameter and of its slots whose gradient is zero stay as they are.

    Rows are the entries of the first dimension, and the elements of a vector. The gradient is dense, as the backward
    pass of a gather makes it: a row counts as touched if an element of it is not zero.
    """

    @property
    def elementwise(self) -> bool:
        """What happens to an element depends on its row."""
        return False

    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Take one step where there is a gradient; see the class for the equations."""
        touched = _any(xp, grad, tuple(range(1, param.ndim)))
        moved, slots = super().update(xp, param, grad, state, hyper, step)  # type: ignore[safe-super] # a mixin's
        kept = {slot: xp.where(touched, value, state[slot]) for slot, value in slots.items()}
        return xp.where(touched, moved, param), kept


@dataclass(frozen=True)
class SparseAdam(_Rows, Adam):
    """Adam for embeddings (Kingma and Ba, ICLR 2015, arXiv:1412.6980): rows without a gradient stand still.

    For the rows i of the parameter with gᵢ ≠ 0::

        mᵢ ← β₁·mᵢ + (1 - β₁)·gᵢ
        vᵢ ← β₂·vᵢ + (1 - β₂)·gᵢ²
        θᵢ ← θᵢ - lr·√(1 - β₂ᵗ)/(1 - β₁ᵗ) · mᵢ / (√vᵢ + eps)

    t counts all updates. Moments of the other rows do not decay, and weight decay, 0.0 by default, reaches the touched
    rows only. Slots `exp_avg` (m) and `exp_avg_sq` (v). TensorFlow Addons calls this LazyAdam.

    Semantics and defaults of `torch.optim.SparseAdam`, except that a row which was looked up but got a gradient of
    exactly zero stands still too.
    """

    eps_hat: bool = True


@dataclass(frozen=True)
class SparseSGD(_Rows, SGD):
    """SGD for embeddings: rows without a gradient stand still.

    For the rows i of the parameter with gᵢ ≠ 0::

        bᵢ ← momentum·bᵢ + (1 - dampening)·gᵢ
        θᵢ ← θᵢ - lr·bᵢ

    Slot `momentum_buffer` is b, with momentum only; dampening and Nesterov's form are as in `SGD`. Buffers of the other
    rows do not decay, and weight decay, 0.0 by default, reaches the touched rows only.

    Semantics of `torch.optim.SGD` with sparse gradients where there is no momentum. With momentum torch moves every
    row that ever had a gradient; here a row moves when it has one.
    """


@dataclass(frozen=True)
class LazyAdam(Adam):
    """Adam whose state begins with the first gradient (Kingma and Ba, ICLR 2015, arXiv:1412.6980).

    The equations of `Adam`, with a count of updates for each parameter::

        t ← t + 1,  m, v, θ ← Adam(m, v, θ, g, t)      where g ≠ 0 in some element
        nothing                                         where g is zero as a whole

    Slots `exp_avg` (m), `exp_avg_sq` (v), with `amsgrad` `max_exp_avg_sq`, and `updates` (t).

    Semantics of `torch.optim.Adam`, which makes its state at the first gradient and passes over a parameter without
    one. For rows of an embedding that go their own ways see `SparseAdam`.
    """

    @property
    def elementwise(self) -> bool:
        """Whether anything happens depends on the whole gradient."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros."""
        return {**super().init(param), **zeros(np.zeros((), np.float64), "updates")}

    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Take one step if there is a gradient; see the class for the equations."""
        touched = xp.any(xp.not_equal(grad, xp.zeros_like(grad)))
        updates = state["updates"] + xp.astype(touched, xp.float64)
        # Before the first gradient no step is taken; 1 keeps its corrections finite.
        count = xp.maximum(updates, xp.ones_like(updates))
        moved, slots = super().update(xp, param, grad, state, hyper, count)
        kept = {slot: xp.where(touched, value, state[slot]) for slot, value in slots.items()}
        return xp.where(touched, moved, param), {**kept, "updates": updates}
