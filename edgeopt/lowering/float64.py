"""Operators that ONNX Runtime's CPU provider computes in float32 but not in float64, said with those it does.

Which kernels are missing was measured on 1.17.0 and 1.32.0; the table holds what either lacks. float64 is for checking
gradients and for small models, so these forms are chosen for brevity and not for speed.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.lowering import arithmetic as _arithmetic  # noqa: F401  # fills the table
from edgeopt.lowering import quantization as _quantization  # noqa: F401  # fills the table
from edgeopt.lowering import windows as _windows  # noqa: F401  # fills the table
from edgeopt.lowering.registry import is_double, lowering
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site

double = partial(lowering, when=is_double)

# With 24 nodes the error is below 3e-15 for |x| ≤ 6, beyond which erf is ±1; more nodes only round more often.
_ERF_LIMIT = 6.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


@double("Erf")
def erf(n: Site) -> Array:
    """2x/√π ∫₀¹ exp(-x²t²) dt by Gauss and Legendre, the sum as a matrix product."""
    x = xp.clip(n.x, -_ERF_LIMIT, _ERF_LIMIT)
    scaled = op.Unsqueeze(x, [-1]) * ((_NODES + 1) / 2)
    inside = x * xp.matmul(xp.exp(-(scaled * scaled)), _WEIGHTS / math.sqrt(math.pi))
    # Exactly ±1 beyond: Gelu multiplies the difference to it by x.
    return xp.where(xp.abs(n.x) < _ERF_LIMIT, inside, xp.sign(n.x))


@double("Gelu")
def gelu(n: Site) -> Array:
    """The definition of the ONNX operator."""
    x = n.x
    if n.attr("approximate", "none") == "none":
        return x * (0.5 * (1.0 + op.Erf(x * math.sqrt(0.5))))
    return x * (0.5 * (1.0 + xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x)))))


def _softplus(x: Array) -> Array:
    """log(1 + exp(x)) without overflow."""
    return xp.maximum(x, 0.0) + xp.log1p(xp.exp(-xp.abs(x)))


def _hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    return xp.clip(x * alpha + beta, 0.0, 1.0)


def _exponential_unit(x: Array, alpha: float) -> Array:
    """alpha (exp(x) - 1) below zero, x above."""
    return xp.maximum(x, 0.0) + (xp.exp(xp.minimum(x, 0.0)) - 1.0) * alpha


@double("Softplus")
def softplus(n: Site) -> Array:
    """log(1 + exp(x))."""
    return _softplus(n.x)


@double("Mish")
def mish(n: Site) -> Array:
    """x tanh(log(1 + exp(x)))."""
    return n.x * xp.tanh(_softplus(n.x))


@double("Elu")
def elu(n: Site) -> Array:
    """alpha (exp(x) - 1) below zero."""
    return _exponential_unit(n.x, n.number("alpha", 1.0))


@double("Celu")
def celu(n: Site) -> Array:
    """alpha (exp(x/alpha) - 1) below zero; a model made float64 can hold it, though ONNX knows it in float32 only."""
    alpha = n.number("alpha", 1.0)
    return xp.maximum(n.x, 0.0) + (xp.exp(xp.minimum(n.x, 0.0) * (1.0 / alpha)) - 1.0) * alpha


@double("Selu")
def selu(n: Site) -> Array:
    """The constants that the ONNX operator states."""
    alpha = n.number("alpha", 1.67326319217681884765625)
    gamma = n.number("gamma", 1.05070102214813232421875)
    return _exponential_unit(n.x, alpha) * gamma


@double("LeakyRelu", "PRelu")
def leaky_relu(n: Site) -> Array:
    """A slope below zero."""
    slope = n.input(1) if n.node.op_type == "PRelu" else n.number("alpha", 0.01)
    return xp.maximum(n.x, 0.0) + xp.minimum(n.x, 0.0) * slope


@double("ThresholdedRelu")
def thresholded_relu(n: Site) -> Array:
    """x above alpha, else 0."""
    return n.x * xp.astype(n.x > n.number("alpha", 1.0), n.x.dtype)


@double("Shrink")
def shrink(n: Site) -> Array:
    """ONNX Runtime has a kernel, which computes in float32."""
    outside = xp.astype(xp.abs(n.x) > n.number("lambd", 0.5), n.x.dtype)
    return (n.x - xp.sign(n.x) * n.number("bias", 0.0)) * outside


@double("HardSigmoid")
def hard_sigmoid(n: Site) -> Array:
    """A line, cut at 0 and 1."""
    return _hard_sigmoid(n.x, n.number("alpha", 0.2), n.number("beta", 0.5))


@double("HardSwish")
def hard_swish(n: Site) -> Array:
    """x times a hard sigmoid."""
    return n.x * _hard_sigmoid(n.x, 1 / 6, 0.5)


@double("Softsign")
def softsign(n: Site) -> Array:
    """x / (1 + |x|)."""
    return n.x / (1.0 + xp.abs(n.x))


@double("Tan")
def tan(n: Site) -> Array:
    """sin / cos."""
    return xp.sin(n.x) / xp.cos(n.x)


@double("Sinh")
def sinh(n: Site) -> Array:
    """Half the difference of exponentials."""
    return (xp.exp(n.x) - xp.exp(-n.x)) * 0.5


@double("Cosh")
def cosh(n: Site) -> Array:
    """Half the sum of exponentials."""
    return (xp.exp(n.x) + xp.exp(-n.x)) * 0.5


@double("Asinh")
def asinh(n: Site) -> Array:
    """log(|x| + √(x² + 1)) with the sign of x; log1p keeps small numbers accurate."""
    size = xp.abs(n.x)
    square = size * size
    return xp.sign(n.x) * xp.log1p(size + square / (1.0 + xp.sqrt(square + 1.0)))


@double("Acosh")
def acosh(n: Site) -> Array:
    """log(x + √(x² - 1))."""
    return xp.log(n.x + xp.sqrt(n.x * n.x - 1.0))


@double("Atanh")
def atanh(n: Site) -> Array:
    """Half of log((1 + x) / (1 - x))."""
    return (xp.log1p(n.x) - xp.log1p(-n.x)) * 0.5


_ATAN_NODES, _ATAN_WEIGHTS = np.polynomial.legendre.leggauss(12)


def _atan(x: Array) -> Array:
    """8 atan(y), the argument halved thrice, with atan y = y ∫₀¹ 1 / (1 + y²t²) dt by Gauss and Legendre.

    The argument is cut where the arc tangent is ±π/2 to the last bit, and its square finite.
    """
    x = xp.clip(x, -1e17, 1e17)
    for _ in range(3):
        x = x / (1.0 + xp.sqrt(1.0 + x * x))
    scaled = op.Unsqueeze(x, [-1]) * ((_ATAN_NODES + 1) / 2)
    return x * xp.matmul(1.0 / (1.0 + scaled * scaled), 4.0 * _ATAN_WEIGHTS)


@double("Atan")
def atan(n: Site) -> Array:
    """The arc tangent."""
    return _atan(n.x)


@double("Asin")
def asin(n: Site) -> Array:
    """asin x = 2 atan(x / (1 + √(1 - x²)))."""
    return 2.0 * _atan(n.x / (1.0 + xp.sqrt(1.0 - n.x * n.x)))


@double("Acos")
def acos(n: Site) -> Array:
    """π/2 - asin x."""
    return math.pi / 2 - 2.0 * _atan(n.x / (1.0 + xp.sqrt(1.0 - n.x * n.x)))


@double("ReduceProd")
def reduce_prod(n: Site) -> Array:
    """By logarithms of the sizes; the signs' product is the parity of the negative ones. 1.32 has a kernel."""
    attributes = {name: attribute.value for name, attribute in n.node.attributes.items()}
    axes = n.inputs[1:]
    negative = xp.astype(n.x < 0.0, n.x.dtype)
    odd = op.Mod(op.ReduceSum(negative, *axes, **attributes), 2.0, fmod=1)
    return xp.exp(op.ReduceSum(xp.log(xp.abs(n.x)), *axes, **attributes)) * (1.0 - 2.0 * odd)


@double("MeanVarianceNormalization")
def mean_variance_normalization(n: Site) -> Array:
    """The operator's function body."""
    axes = list(n.attr("axes", (0, 2, 3)))
    mean = op.ReduceMean(n.x, axes, keepdims=1)
    square = op.ReduceMean(n.x * n.x, axes, keepdims=1)
    return (n.x - mean) / (xp.sqrt(square - mean * mean) + 1e-9)


@double("Cos")
def cos(n: Site) -> Array:
    """1.17 has a double kernel for the sine alone."""
    return xp.sin(n.x + math.pi / 2)


@double("Mean")
def mean(n: Site) -> Array:
    """The variadic mean."""
    return op.Sum(*n.inputs) * (1.0 / len(n.inputs))


@double("ReduceL2")
def reduce_l2(n: Site) -> Array:
    """The root of the sum of squares."""
    attributes = {name: attribute.value for name, attribute in n.node.attributes.items()}
    return xp.sqrt(op.ReduceSum(n.x * n.x, *n.inputs[1:], **attributes))


def _fused_producer(x: Array) -> str | None:
    """The operator that makes an array, behind those which are gone before anything is fused.

    Casts from float64 to itself, identities, and reshapes that change nothing are.
    """
    producer = x.value.producer()
    while producer is not None and producer.op_type in ("Cast", "Identity", "Reshape"):
        producer = None if producer.inputs[0] is None else producer.inputs[0].producer()
    return None if producer is None else producer.op_type


# What 1.17 moves a transposition behind, where it likes that better: to the product that reads the result.
_MOVED_BEHIND = frozenset(
    {"Abs", "Add", "Cast", "Clip", "Div", "Exp", "Identity", "Log", "Max", "Min", "Mul", "Neg", "Pow", "Reciprocal"}
    | {"Relu", "Reshape", "Sigmoid", "Sign", "Sqrt", "Squeeze", "Sub", "Tanh", "Unsqueeze", "Where"}
)


def _is_transposed(x: ir.Value | None) -> bool:
    """Whether a transposition may be moved to where the array is read."""
    pending, seen = [x], set[ir.Node]()
    while pending:
        value = pending.pop()
        producer = None if value is None else value.producer()
        if producer is not None and producer.op_type == "Transpose":
            return True
        if producer is not None and producer.op_type in _MOVED_BEHIND and producer not in seen:
            seen.add(producer)
            pending.extend(producer.inputs)
    return False


def _multiplies_transposed(n: Site) -> bool:
    return is_double(n) and any(x is not None and _is_transposed(x.value) for x in n.inputs)


@lowering("MatMul", when=_multiplies_transposed)
def matmul_of_transposed(n: Site) -> Array:
    """1.17 fuses the transposition into a product for which it then has no kernel; a Sum of one between them does not.

    Other neutral operators would be optimized away.
    """
    operands = [op.Sum(x) if x.value.producer() is not None else x for x in (n.input(0), n.input(1))]
    return op.MatMul(*operands)


def _activates_a_product(n: Site) -> bool:
    return is_double(n) and _fused_producer(n.x) in ("Add", "Gemm")


@lowering("Relu", "Sigmoid", "Tanh", when=_activates_a_product)
def activation_of_a_product(n: Site) -> Array:
    """1.17 fuses it with the product into an operator for which it then has no kernel; see `matmul_of_transposed`."""
    return n.tracer.emit(n.node.op_type, op.Sum(n.x))


def _gates_its_input(n: Site) -> bool:
    readers = {user for user, _ in n.y.value.uses() if user.op_type == "Mul"}
    producer = n.x.value.producer()
    scaled = producer.inputs if producer is not None and producer.op_type == "Mul" else ()
    return is_double(n) and any(gated in user.inputs for user in readers for gated in (n.x.value, *scaled))


@lowering("Sigmoid", when=_gates_its_input)
def gating_sigmoid(n: Site) -> Array:
    """1.17 fuses x sigmoid(alpha x) into an operator for which it then has no kernel."""
    return 1.0 / (1.0 + xp.exp(-n.x))


@double("LayerNormalization")
def layer_normalization(n: Site) -> tuple[Array, Array, Array]:
    """The definition of the ONNX operator; mean and inverse deviation are its further outputs."""
    x = n.x
    axes = list(range(n.attr("axis", -1) % x.ndim, x.ndim))
    mean = op.ReduceMean(x, axes, keepdims=1)
    centred = x - mean
    inverse = 1.0 / xp.sqrt(op.ReduceMean(centred * centred, axes, keepdims=1) + n.number("epsilon", 1e-5))
    scaled = centred * inverse * n.input(1)
    return scaled + n.input(2) if n.has(2) else scaled, mean, inverse


@double("InstanceNormalization")
def instance_normalization(n: Site) -> Array:
    """Statistics of each channel of each sample."""
    x = n.x
    axes = list(range(2, x.ndim))
    centred = x - op.ReduceMean(x, axes, keepdims=1)
    inverse = 1.0 / xp.sqrt(op.ReduceMean(centred * centred, axes, keepdims=1) + n.number("epsilon", 1e-5))
    scale, bias = (op.Unsqueeze(n.input(i), list(range(1, x.ndim - 1))) for i in (1, 2))
    return centred * (inverse * scale) + bias


def _has_attribute_that_float32_lacks(name: str, n: Site) -> bool:
    """An attribute is a float32 in a file; a module's own number is a double, and still is one here."""
    number = n.number(name, 1.0)
    return is_double(n) and float(np.float32(number)) != number


@lowering("BatchNormalization", when=partial(_has_attribute_that_float32_lacks, "epsilon"))
def batch_normalization(n: Site) -> Array:
    """What a file cannot say of epsilon goes into the variance."""
    epsilon = n.number("epsilon", 1e-5)
    written = float(np.float32(epsilon))
    variance = n.input(4) + (epsilon - written)
    return op.BatchNormalization(n.x, n.input(1), n.input(2), n.input(3), variance, epsilon=written)


@lowering("Gemm", when=lambda n: any(_has_attribute_that_float32_lacks(name, n) for name in ("alpha", "beta")))
def gemm(n: Site) -> Array:
    """The factors as constants."""
    alpha, beta = n.number("alpha", 1.0), n.number("beta", 1.0)
    flags = {name: n.attr(name, 0) for name in ("transA", "transB")}
    product = op.Gemm(n.x, n.input(1), **flags) * alpha
    return product + n.input(2) * beta if n.has(2) else product
