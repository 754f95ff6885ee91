"""Activation functions."""

from __future__ import annotations

import math

from edgeopt import tracing as xp
from edgeopt.autodiff.registry import rule
from edgeopt.autodiff.rules.elementwise import derivative, indicator, passing
from edgeopt.tracing import Array, op
from edgeopt.tracing.fusing import all_of, fused
from edgeopt.tracing.site import Site

_SQRT_HALF = math.sqrt(0.5)
_ONE_OVER_SQRT_2PI = 1 / math.sqrt(2 * math.pi)

derivative("Softplus", lambda n: op.Sigmoid(n.x))


@rule("Relu")
def relu(n: Site, g: Array) -> Array:
    """1 above zero, else 0."""
    # Comparison and cast together take half the time of one Sign on ONNX Runtime.
    return all_of(fused("ClipGrad", [g, n.y], lambda g, y: passing(n, g, y > 0.0), low=0.0))[0]


@rule("LeakyRelu")
def leaky_relu(n: Site, g: Array) -> Array:
    """Slope alpha below zero."""
    alpha = n.number("alpha", 0.01)
    positive = indicator(n.x > 0.0, g)
    return g * (alpha + (1.0 - alpha) * positive)


@rule("Elu")
def elu(n: Site, g: Array) -> Array:
    """alpha (exp(x) - 1) below zero, where the derivative is y + alpha."""
    positive = indicator(n.x > 0.0, g)
    return g * (positive + (1.0 - positive) * (n.y + n.number("alpha", 1.0)))


@rule("HardSigmoid")
def hard_sigmoid(n: Site, g: Array) -> Array:
    """max(0, min(1, alpha x + beta)): alpha strictly inside, as in PyTorch."""
    return n.number("alpha", 0.2) * passing(n, g, (n.y > 0.0) & (n.y < 1.0))


@rule("HardSwish")
def hard_swish(n: Site, g: Array) -> Array:
    """x max(0, min(1, x/6 + 1/2))."""
    inside = indicator((n.x > -3.0) & (n.x < 3.0), g)
    above = indicator(n.x >= 3.0, g)
    to_x = g * (inside * (n.x * (1 / 3) + 0.5) + above)
    return passing(n, to_x, n.x > -3.0) if n.singular else to_x


@rule("Gelu")
def gelu(n: Site, g: Array) -> Array:
    """x Φ(x): Φ(x) + x φ(x); or the tanh approximation."""
    approximate = n.attr("approximate", "none")
    return all_of(fused("GeluGrad", [g, n.x], _gelu_tanh if approximate == "tanh" else _gelu, approximate=approximate))[
        0
    ]


def _gelu(g: Array, x: Array) -> Array:
    cdf = 0.5 + 0.5 * op.Erf(x * _SQRT_HALF)
    density = xp.exp(x * x * -0.5) * _ONE_OVER_SQRT_2PI
    return g * (cdf + x * density)


def _gelu_tanh(g: Array, x: Array) -> Array:
    scale = math.sqrt(2 / math.pi)
    square = x * x
    tanh = xp.tanh(x * (square * (0.044715 * scale) + scale))
    slope = square * (3 * 0.044715 * scale) + scale
    return g * (0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * slope)


@rule("Selu")
def selu(n: Site, g: Array) -> Array:
    """gamma x, or gamma alpha (exp(x) - 1) below zero, where the derivative is y + gamma alpha."""
    alpha, gamma = n.number("alpha", 1.67326319217681884765625), n.number("gamma", 1.05070102214813232421875)
    positive = indicator(n.x > 0.0, g)
    return g * (gamma * positive + (1.0 - positive) * (n.y + gamma * alpha))


@rule("Celu")
def celu(n: Site, g: Array) -> Array:
    """alpha (exp(x / alpha) - 1) below zero, where the derivative is y / alpha + 1; x above."""
    return g * (xp.minimum(n.y, 0.0) * (1.0 / n.number("alpha", 1.0)) + 1.0)


@rule("Mish")
def mish(n: Site, g: Array) -> Array:
    """x tanh(softplus(x))."""
    tanh = xp.tanh(op.Softplus(n.x))
    return g * (tanh + n.x * op.Sigmoid(n.x) * (1.0 - tanh * tanh))


@rule("Softsign")
def softsign(n: Site, g: Array) -> Array:
    """x / (1 + |x|)."""
    root = 1.0 - xp.abs(n.y)
    return g * (root * root)


@rule("ThresholdedRelu")
def thresholded_relu(n: Site, g: Array) -> Array:
    """x above alpha, else 0."""
    return passing(n, g, n.x > n.number("alpha", 1.0))


@rule("Shrink")
def shrink(n: Site, g: Array) -> Array:
    """x moved towards 0 by `bias` outside [-lambd, lambd], 0 inside."""
    return passing(n, g, xp.abs(n.x) > n.number("lambd", 0.5))


@rule("PRelu", broadcasts=True)
def prelu(n: Site, g: Array) -> tuple[Array, Array | None]:
    """A learned slope below zero; at zero itself the slope counts, as in PyTorch."""
    positive = indicator(n.x > 0.0, g)
    to_x = g * (positive + (1.0 - positive) * n.input(1))
    return to_x, g * xp.minimum(n.x, 0.0) if n.needs[1] else None
