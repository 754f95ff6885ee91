"""Several losses as one: their sum, each times a factor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgeopt.checks import require
from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.losses.base import ArraySpec, Loss

__all__ = ["WeightedSum"]


@dataclass(frozen=True)
class WeightedSum(Loss):
    """Σ factor · loss, as `CrossEntropy(output="logits") + 0.3 * MSE(output="depth", target="depth")` makes it.

    Each loss reads its own outputs and targets, and is a mean of its own: over samples, over labelled tokens, by class
    weights. Accumulation stays exact, since gradients of losses that are divided by different weights are summed apart.
    A loss that counts nothing in a batch (no sample has a label of that task) adds nothing to the sum. Losses that
    share a target name share the batch input.

    Every loss is reported under `loss.NAME`, the name being that of the output it reads if it says one, else that of
    its class; the sum is `loss`.
    """

    losses: Sequence[tuple[float, Loss]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        given = tuple(self.losses)
        require(bool(given), "losses must not be empty")
        for pair in given:
            if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], Loss)):
                raise ConfigurationError(f"losses must be pairs of a factor and a loss, got {pair!r}")
            require(math.isfinite(pair[0]), f"the factor of a loss must be a finite number, got {pair[0]!r}")
        flat = tuple((float(outer) * inner, loss) for outer, each in given for inner, loss in each.parts())
        object.__setattr__(self, "losses", flat)
        own = {"reduction": "mean", "target": "target", "output": None, "sample_weight": None}
        set_here = [name for name, default in own.items() if getattr(self, name) != default]
        require(not set_here, f"give {', '.join(set_here)} to the losses of the sum, not to the sum")

    def parts(self) -> tuple[tuple[float, Loss], ...]:
        """Return the losses and their factors."""
        return tuple(self.losses)

    def targets(self, prediction: ArraySpec, *others: ArraySpec) -> tuple[ArraySpec, ...]:
        """Raise `SignatureError`: a sum has no targets of its own."""
        raise SignatureError("The targets of a sum of losses are those of its parts.")
