"""Activation functions that are newer than the target opset, or that optimizers have fused with what feeds them."""

from __future__ import annotations

from collections.abc import Callable

from edgeopt import tracing as xp
from edgeopt.canonical.registry import decomposition
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site

__all__ = ["ACTIVATIONS", "activated", "activation_problem", "sigmoid_gated"]

# By the names that fused operators give them, with the parameters that such a node carries.
ACTIVATIONS: dict[str, Callable[[Array, tuple[float, ...]], Array]] = {
    "Clip": lambda x, p: op.Clip(x, p[0], p[1]),
    "Elu": lambda x, p: op.Elu(x, alpha=p[0]) if p else op.Elu(x),
    "HardSigmoid": lambda x, p: op.HardSigmoid(x, alpha=p[0], beta=p[1]) if p else op.HardSigmoid(x),
    "HardSwish": lambda x, _p: op.HardSwish(x),
    "LeakyRelu": lambda x, p: op.LeakyRelu(x, alpha=p[0]) if p else op.LeakyRelu(x),
    "ParametricSoftplus": lambda x, p: op.Softplus(x * p[1]) * p[0],
    "Relu": lambda x, _p: op.Relu(x),
    "ScaledTanh": lambda x, p: op.Tanh(x * p[1]) * p[0],
    "Sigmoid": lambda x, _p: op.Sigmoid(x),
    "Softplus": lambda x, _p: op.Softplus(x),
    "Softsign": lambda x, _p: op.Softsign(x),
    "Tanh": lambda x, _p: op.Tanh(x),
    "ThresholdedRelu": lambda x, p: op.ThresholdedRelu(x, alpha=p[0]) if p else op.ThresholdedRelu(x),
}


def activated(n: Site, y: Array) -> Array:
    """What the node's attribute `activation` makes of a result."""
    name = n.attr("activation", "")
    return ACTIVATIONS[name](y, _parameters(n)) if name else y


def activation_problem(n: Site) -> str | None:
    """Why the node's activation is not known here."""
    name = n.attr("activation", "")
    return None if not name or name in ACTIVATIONS else f"its activation {name} is not known"


def _parameters(n: Site) -> tuple[float, ...]:
    listed = n.attr("activation_params")
    if listed is not None:
        return tuple(map(float, listed))
    named = (n.attr(f"activation_{letter}") for letter in ("alpha", "beta", "gamma"))
    return tuple(float(value) for value in named if value is not None)


def sigmoid_gated(x: Array, alpha: float = 1.0) -> Array:
    """x sigmoid(alpha x)."""
    return x * op.Sigmoid(x * alpha)


@decomposition("Swish")
def swish(n: Site) -> Array:
    """x sigmoid(alpha x)."""
    return sigmoid_gated(n.x, n.number("alpha", 1.0))


@decomposition("com.microsoft::QuickGelu")
def quick_gelu(n: Site) -> Array:
    """x sigmoid(1.702 x)."""
    return sigmoid_gated(n.x, n.number("alpha", 1.702))


@decomposition("com.microsoft::ScaledSiLU")
def scaled_silu(n: Site) -> Array:
    """The same of a scaled x."""
    return sigmoid_gated(n.x * n.input(1) if n.has(1) else n.x * n.number("alpha", 1.0))


@decomposition("SwiGLU")
def swiglu(n: Site) -> Array:
    """A gate by the Swish of the first input."""
    return sigmoid_gated(n.x, n.number("alpha", 1.0)) * n.input(1)


@decomposition("com.microsoft::SwiGLU")
def clamped_swiglu(n: Site) -> Array:
    """Both halves may be limited; one input may hold them, one behind the other."""
    if n.has(1):
        gate, linear = n.x, n.input(1)
    else:
        gate, linear = n.tracer.emit("Split", n.x, axis=-1, num_outputs=2, outputs=2)
    limit = n.number("limit", 0.0)
    if limit > 0.0:
        gate, linear = op.Min(gate, limit), op.Clip(linear, -limit, limit)
    offset = n.number("activation_beta", 0.0)
    return sigmoid_gated(gate, n.number("activation_alpha", 1.0)) * (linear + offset if offset else linear)


def _is_projected(n: Site) -> str | None:
    return "its gate is projected, in the precision of one provider" if n.has(3) else None


@decomposition("com.microsoft::GatedAdd", limits=_is_projected)
def gated_add(n: Site) -> Array:
    """X + gate Y, one gate for each row."""
    return n.x + n.input(1) * n.input(2)


@decomposition("com.microsoft::Gelu")
def gelu(n: Site) -> Array:
    """The exact one; the standard domain has it since opset 20."""
    return op.Gelu(n.x)


@decomposition("com.microsoft::BiasGelu")
def bias_gelu(n: Site) -> Array:
    """Of a sum."""
    return op.Gelu(n.x + n.input(1))


@decomposition("com.microsoft::FastGelu")
def fast_gelu(n: Site) -> Array:
    """The tanh approximation, of a sum where there is a bias."""
    return op.Gelu(n.x + n.input(1) if n.has(1) else n.x, approximate="tanh")


@decomposition("com.microsoft::BiasSplitGelu")
def bias_split_gelu(n: Site) -> Array:
    """The first half times the Gelu of the second."""
    left, right = n.tracer.emit("Split", n.x + n.input(1), axis=-1, num_outputs=2, outputs=2)
    return left * op.Gelu(right)


@decomposition("com.microsoft::BiasAdd")
def bias_add(n: Site) -> Array:
    """Bias and residual."""
    return n.x + n.input(1) + n.input(2)


@decomposition("com.microsoft::BiasDropout")
def bias_dropout(n: Site) -> tuple[Array, Array]:
    """Dropout of a sum, and a residual."""
    ratio, training = (n.inputs[i] if n.has(i) else None for i in (3, 4))
    kept, mask = n.tracer.emit("Dropout", n.x + n.input(1), ratio, training, outputs=2)
    return (kept + n.input(2) if n.has(2) else kept), mask


def _is_not_last(n: Site) -> str | None:
    axis = n.attr("axis", 1)
    return None if axis in (-1, n.x.ndim - 1) else "its softmax runs over several axes"


@decomposition("com.microsoft::BiasSoftmax", limits=_is_not_last)
def bias_softmax(n: Site) -> Array:
    """Softmax of a sum."""
    return op.Softmax(n.x + n.input(1), axis=-1)


@decomposition("com.microsoft::ComplexMul", "com.microsoft::ComplexMulConj")
def complex_mul(n: Site) -> Array:
    """(a + bi)(c + di), real and imaginary part along the last axis; by c - di for the second operator."""
    a, b = n.tracer.emit("Split", n.x, axis=-1, num_outputs=2, outputs=2)
    c, d = n.tracer.emit("Split", n.input(1), axis=-1, num_outputs=2, outputs=2)
    if n.node.op_type == "ComplexMulConj":
        d = -d
    product: Array = xp.concat([a * c - b * d, a * d + b * c], axis=-1)
    return product
