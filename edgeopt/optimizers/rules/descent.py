"""Rules that subtract a step from the parameter: what surrounds the step is written once, here."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import require
from edgeopt.optimizers.base import Arrays, Rule, Updated

__all__ = ["Decay", "Descent"]

#: Where weight decay acts.
Decay: TypeAlias = Literal["gradient", "before", "after", "proximal", "cautious"]


@dataclass(frozen=True, kw_only=True)
class Descent(Rule):
    """A rule of the form θ ← θ - Δ, with weight decay, and the choice to climb or to be cautious.

    With λ = `weight_decay`, the places of the decay that `decay` names are::

        gradient    g ← g + λ·θ, and all that follows sees it (L2 regularisation)
        before      θ ← θ·(1 - lr·λ), then the step: decoupled, as in AdamW
        after       the step, then θ ← θ·(1 - lr·λ)
        proximal    the step, then θ ← θ/(1 + lr·λ)
        cautious    θ ← θ·(1 - lr·λ) where Δ·θ ≥ 0, with the step: only where both shrink it (arXiv:2510.12402)

    Each rule has the default of its reference. A weight decay of exactly 0.0 is left out of the graph.

    `maximize` negates the gradient first. `cautious` takes no step where Δ and the gradient disagree in sign, and
    scales the remaining elements by 1/max(m, 1e-3), m being the share that remains (Liang et al. 2024,
    arXiv:2411.16085, in the form of timm, which averages over each tensor).

    A rule implements `delta`, and returns Δ instead of the next parameter.

    Raises:
        ConfigurationError: A number out of its range, or an unknown place of the decay.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay"})

    weight_decay: float = 0.0
    decay: Decay = "gradient"
    cautious: bool = False
    maximize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        places = get_args(Decay)
        require(self.decay in places, f"decay must be one of {', '.join(places)}, got {self.decay!r}")

    @property
    def elementwise(self) -> bool:
        """Whether each element is updated on its own; caution averages over the tensor."""
        return not self.cautious

    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Take one step; see the class for the equations."""
        if self.maximize:
            grad = -grad
        place = self.decay if self.weight_decay else "nowhere"
        if place == "gradient":
            grad = grad + cast_like(xp, hyper["weight_decay"], param) * param
        if place == "before":
            param = cast_like(xp, 1.0 - hyper["lr"] * hyper["weight_decay"], param) * param
        delta, slots = self.delta(xp, param, grad, state, hyper, step)
        if self.cautious:
            # Signs, not magnitudes: a product of two tiny numbers would underflow to a disagreement.
            agreement = xp.astype(delta * xp.sign(grad) > 0, param.dtype)
            delta = delta * agreement / xp.maximum(xp.mean(agreement), xp.asarray(1e-3, dtype=param.dtype))
        if place == "cautious":
            # By sign again, so that no product underflows.
            agrees = xp.sign(delta) * param >= 0
            shrink = cast_like(xp, hyper["lr"] * hyper["weight_decay"], param)
            delta = delta + xp.where(agrees, shrink * param, xp.zeros_like(param))
        param = param - delta
        if place == "after":
            param = cast_like(xp, 1.0 - hyper["lr"] * hyper["weight_decay"], param) * param
        if place == "proximal":
            param = cast_like(xp, 1.0 / (1.0 + hyper["lr"] * hyper["weight_decay"]), param) * param
        return param, slots

    @abstractmethod
    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return what to subtract from the parameter, and the next value of every slot.

        `grad` points uphill, whatever `maximize` says, and holds the weight decay where that acts on the gradient.
        """
