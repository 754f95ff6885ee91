"""Elementwise operators: a derivative each, times the cotangent."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.registry import regular, rule
from edgeopt.tracing import Array, op
from edgeopt.tracing.fusing import all_of, fused
from edgeopt.tracing.marks import WRITTEN
from edgeopt.tracing.site import Site

_TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)


def _always(_site: Site) -> bool:
    return True


def derivative(op_type: str, formula: Callable[[Site], Array], *, singular: bool = False) -> None:
    """Register a one-input operator by the derivative of its output; a singular one has points where it is infinite."""

    def apply(n: Site, g: Array) -> Array:
        """The derivative of each element."""
        return g * formula(n)

    # The rule belongs to the file that states it.
    apply.__module__ = formula.__module__
    rule(op_type, singular=_always if singular else regular)(apply)


def indicator(condition: Array, like: Array) -> Array:
    """1 where the condition holds, else 0: a product with it is several times cheaper than Where on ONNX Runtime."""
    return xp.astype(condition, like.dtype)


def passing(n: Site, g: Array, condition: Array) -> Array:
    """The cotangent where a condition holds, else 0, as PyTorch's masks have it.

    A product with the indicator, unless an infinity may arrive: √max(x, 0) has the derivative 0 at negative x.
    """
    if n.singular:
        return op.Where(condition, g, g.tracer.constant(0.0, g.dtype))
    return g * indicator(condition, g)


derivative("Exp", lambda n: n.y)
derivative("Tanh", lambda n: 1.0 - n.y * n.y)
derivative("Sigmoid", lambda n: n.y * (1.0 - n.y))
derivative("Sqrt", lambda n: 0.5 / n.y, singular=True)
derivative("Reciprocal", lambda n: -(n.y * n.y), singular=True)
derivative("Log", lambda n: 1.0 / n.x, singular=True)
derivative("Erf", lambda n: _TWO_OVER_SQRT_PI * xp.exp(-(n.x * n.x)))
derivative("Sin", lambda n: xp.cos(n.x))
derivative("Cos", lambda n: -xp.sin(n.x))
derivative("Tan", lambda n: 1.0 + n.y * n.y)
derivative("Asin", lambda n: 1.0 / xp.sqrt(1.0 - n.x * n.x), singular=True)
derivative("Acos", lambda n: -1.0 / xp.sqrt(1.0 - n.x * n.x), singular=True)
derivative("Atan", lambda n: 1.0 / (1.0 + n.x * n.x))
derivative("Sinh", lambda n: op.Cosh(n.x))
derivative("Cosh", lambda n: op.Sinh(n.x))
derivative("Asinh", lambda n: 1.0 / xp.sqrt(n.x * n.x + 1.0))
derivative("Acosh", lambda n: 1.0 / xp.sqrt(n.x * n.x - 1.0), singular=True)
derivative("Atanh", lambda n: 1.0 / (1.0 - n.x * n.x), singular=True)
derivative("Abs", lambda n: xp.sign(n.x))


@rule("Neg")
def neg(n: Site, g: Array) -> Array:
    """-x."""
    return -g


@rule("Identity")
def identity(n: Site, g: Array) -> Array:
    """x."""
    return g


@rule("Cast")
def cast(n: Site, g: Array) -> Array:
    """The cotangent goes back in the input's own type."""
    return xp.astype(g, n.x.dtype)


@rule("Add", broadcasts=True)
def add(n: Site, g: Array) -> tuple[Array, Array]:
    """a + b."""
    return g, g


@rule("Sub", broadcasts=True)
def sub(n: Site, g: Array) -> tuple[Array, Array | None]:
    """a - b."""
    return g, -g if n.needs[1] else None


@rule("Mul", broadcasts=True)
def mul(n: Site, g: Array) -> tuple[Array | None, Array | None]:
    """a b."""
    a, b = n.input(0), n.input(1)
    return (g * b if n.needs[0] else None), (g * a if n.needs[1] else None)


def _divisor_may_vanish(n: Site) -> bool:
    divisor = n.constant(1)
    return divisor is None or not np.all(divisor)


@rule("Div", broadcasts=True, singular=_divisor_may_vanish)
def div(n: Site, g: Array) -> tuple[Array, Array | None]:
    """a / b: d/db = -y / b."""
    quotient = g / n.input(1)
    return quotient, -(quotient * n.y) if n.needs[1] else None


@rule("Sum", broadcasts=True)
def variadic_sum(n: Site, g: Array) -> list[Array]:
    """a + b + c + …."""
    return [g] * len(n.inputs)


@rule("Mean", broadcasts=True)
def variadic_mean(n: Site, g: Array) -> list[Array]:
    """(a + b + c + …) / count."""
    return [g * (1.0 / len(n.inputs))] * len(n.inputs)


@rule("Mod", broadcasts=True)
def mod(n: Site, g: Array) -> tuple[Array, Array | None]:
    """a - b trunc(a / b), the remainder of the C function fmod; for floats ONNX allows no other."""
    if not n.needs[1]:
        return g, None
    # (a - y) / b is the quotient itself, up to rounding.
    return g, -(g * op.Round((n.input(0) - n.y) / n.input(1)))


def _is_steep(n: Site) -> bool:
    """Whether the power may have an infinite derivative."""
    known = n.constant(1)
    return known is None or not np.all((known >= 1) | (known == 0))


@rule("Pow", broadcasts=True, singular=_is_steep)
def power(n: Site, g: Array) -> tuple[Array | None, Array | None]:
    """a^b: b a^(b-1), and y log a, which is 0 where a = 0 and b ≥ 0 (PyTorch's choice; the limit for b > 0)."""
    base, exponent = n.input(0), xp.astype(n.input(1), n.x.dtype)
    to_base = _through_base(n, g, base, exponent) if n.needs[0] else None
    if not n.needs[1]:
        return to_base, None
    zero = (base == xp.zeros_like(base)) & (exponent >= xp.zeros_like(exponent))
    log_base = xp.log(xp.where(zero, xp.ones_like(base), base))
    return to_base, xp.astype(g * n.y * log_base, n.input(1).dtype)


def _through_base(n: Site, g: Array, base: Array, exponent: Array) -> Array:
    """g b a^(b - 1), but 0 where b is 0, for a = 0 too."""
    known = n.constant(1)
    if known is None:
        one_less = exponent - 1.0 + indicator(exponent == xp.zeros_like(exponent), exponent)
        return g * exponent * base**one_less
    lower = np.where(known == 0, 0, known - 1).astype(base.dtype)
    return g * exponent * (base if bool(np.all(lower == 1)) else base**lower)


@rule("Max", "Min", broadcasts=True)
def extremum(n: Site, g: Array) -> list[Array]:
    """The largest (smallest) operand takes the gradient; ties share it equally, as in torch.maximum."""
    if len(n.inputs) == 1:
        return [g]
    chosen = [indicator(n.input(i) == n.y, n.y) for i in range(len(n.inputs))]
    count = chosen[0]
    for other in chosen[1:]:
        count = count + other
    share = g / count
    if n.singular:
        return [passing(n, share, n.input(i) == n.y) for i in range(len(n.inputs))]
    return [share * mask for mask in chosen]


@rule("Where", broadcasts=True)
def where(n: Site, g: Array) -> tuple[None, Array | None, Array | None]:
    """One of two values by a condition; or what was written over the first, whose gradient it keeps."""
    if WRITTEN in n.node.metadata_props:
        return None, g, None
    condition = n.input(0)
    to_first = passing(n, g, condition) if n.needs[1] else None
    to_second = passing(n, g, ~condition) if n.needs[2] else None
    return None, to_first, to_second


@rule("Clip")
def clip(n: Site, g: Array) -> list[Array | None]:
    """Beyond a limit the gradient goes to the limit, where that is no constant.

    At a constant limit itself nothing passes, as in ReLU6, Hardtanh and, since PyTorch 2.15, clamp; at another one x
    and the limit share, as in torch.maximum. Where the lower limit is above the upper one, the value is the upper one
    throughout.
    """
    if _has_constant_limits(n):
        return [_between(n, g)]
    mask: Array | None = None
    to_limits: list[Array | None] = []
    crossed = indicator(n.input(2) < n.input(1), g) if _limits_may_cross(n) else None
    for position, inside_of, on_or_inside_of in ((1, n.x.__gt__, n.x.__ge__), (2, n.x.__lt__, n.x.__le__)):
        if not n.has(position):
            to_limits.append(None)
            continue
        limit = n.input(position)
        inside = indicator(inside_of(limit), g)
        if limit.constant is None:
            inside = 0.5 * inside + 0.5 * indicator(on_or_inside_of(limit), g)
        mask = inside if mask is None else mask * inside
        beyond = 1.0 - inside
        if crossed is not None:
            beyond = beyond * (1.0 - crossed) if position == 1 else xp.maximum(beyond, crossed)
        to_limits.append(op.ReduceSum(g * beyond, keepdims=0) if n.needs[position] else None)
    if mask is not None and crossed is not None:
        mask = mask * (1.0 - crossed)
    if mask is None:
        return [g, *to_limits]
    return [passing(n, g * mask, mask > 0.0) if n.singular else g * mask, *to_limits]


def _has_constant_limits(n: Site) -> bool:
    there = [position for position in (1, 2) if n.has(position)]
    return bool(there) and not _limits_may_cross(n) and all(n.constant(position) is not None for position in there)


def _between(n: Site, g: Array) -> Array:
    """What arrives between two constant limits, of which one may be missing."""
    low, high = (None if (limit := n.constant(i)) is None else float(limit.reshape(())) for i in (1, 2))

    def plain(g: Array, x: Array) -> Array:
        above, below = None if low is None else x > low, None if high is None else x < high
        inside = above if below is None else below if above is None else above & below
        return g if inside is None else passing(n, g, inside)

    return all_of(fused("ClipGrad", [g, n.x], plain, low=low, high=high))[0]


def _limits_may_cross(n: Site) -> bool:
    low, high = n.constant(1), n.constant(2)
    return n.has(1) and n.has(2) and (low is None or high is None or bool(high < low))
