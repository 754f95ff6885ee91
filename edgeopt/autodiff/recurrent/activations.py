"""The activations that recurrent operators name, with their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from edgeopt import tracing as xp
from edgeopt.tracing import Array, op

__all__ = ["ACTIVATIONS", "Activation", "BoundActivation"]


class Activation(NamedTuple):
    """A function with its derivative, which is given argument and value; both are given alpha and beta too."""

    function: Callable[[Array, float, float], Array]
    derivative: Callable[[Array, Array, float, float], Array]
    alpha: float | None = None
    beta: float | None = None


def _step(condition: Array, like: Array) -> Array:
    return xp.astype(condition, like.dtype)


# By the names of the standard in lower case, since ONNX Runtime does not distinguish; with their parameters' defaults.
ACTIVATIONS: dict[str, Activation] = {
    "affine": Activation(lambda x, a, b: x * a + b, lambda x, y, a, b: xp.full_like(x, a), 1.0, 0.0),
    "elu": Activation(lambda x, a, b: op.Elu(x, alpha=a), lambda x, y, a, b: xp.where(x > 0.0, 1.0, y + a), alpha=1.0),
    "hardsigmoid": Activation(
        lambda x, a, b: op.HardSigmoid(x, alpha=a, beta=b),
        lambda x, y, a, b: _step(xp.logical_and(y > 0.0, y < 1.0), y) * a,
        0.2,
        0.5,
    ),
    "leakyrelu": Activation(
        lambda x, a, b: op.LeakyRelu(x, alpha=a), lambda x, y, a, b: xp.where(x > 0.0, xp.ones_like(x), a), alpha=0.01
    ),
    "relu": Activation(lambda x, a, b: op.Relu(x), lambda x, y, a, b: _step(y > 0.0, y)),
    "scaledtanh": Activation(lambda x, a, b: xp.tanh(x * b) * a, lambda x, y, a, b: a * b - y * y * (b / a), 1.0, 1.0),
    "sigmoid": Activation(lambda x, a, b: op.Sigmoid(x), lambda x, y, a, b: y * (1.0 - y)),
    "softplus": Activation(lambda x, a, b: op.Softplus(x), lambda x, y, a, b: 1.0 - xp.exp(-y)),
    "softsign": Activation(lambda x, a, b: op.Softsign(x), lambda x, y, a, b: xp.square(1.0 - xp.abs(y))),
    "tanh": Activation(lambda x, a, b: xp.tanh(x), lambda x, y, a, b: 1.0 - y * y),
    "thresholdedrelu": Activation(
        lambda x, a, b: op.ThresholdedRelu(x, alpha=a), lambda x, y, a, b: _step(x > a, x), alpha=1.0
    ),
}


@dataclass(frozen=True)
class BoundActivation:
    """An activation with its parameters and the clipping of its argument."""

    kind: Activation
    alpha: float
    beta: float
    clip: float | None

    def __call__(self, x: Array) -> Array:
        """The value."""
        clipped = x if self.clip is None else xp.clip(x, -self.clip, self.clip)
        return self.kind.function(clipped, self.alpha, self.beta)

    def derivative(self, x: Array, y: Array) -> Array:
        """The derivative, from argument and value."""
        if self.clip is None:
            return self.kind.derivative(x, y, self.alpha, self.beta)
        inside = _step(xp.abs(x) < self.clip, x)
        return self.kind.derivative(xp.clip(x, -self.clip, self.clip), y, self.alpha, self.beta) * inside
