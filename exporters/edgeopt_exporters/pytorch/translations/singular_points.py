"""Functions that torch's own translation writes in a form which overflows, or has no derivative, where PyTorch's has.

Each is written so that value and derivative are PyTorch's at such points too: what a selection leaves out is computed
of an argument for which it is finite, since gradients multiply what they do not select.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx
import torch
from onnxscript import opset18

from edgeopt_exporters.pytorch.translations.numbers import like

__all__ = ["TRANSLATIONS"]

# Its type variables demand a type for each traced value, which translations do not have.
op: Any = opset18

Axes = int | Sequence[int] | None


def _zero(x: Any) -> Any:
    return op.Equal(x, like(0.0, x))


def _atan2(y: Any, x: Any) -> Any:
    """`aten::atan2`: the arc tangent of the quotient that is at most 1, and the angle of the axis it is measured from.

    The signs of zeros count, as in C. At the origin the derivative is 0.
    """
    zero, quarter, half = (like(angle, y) for angle in (0.0, math.pi / 2, math.pi))
    steep = op.Greater(op.Abs(y), op.Abs(x))
    origin = op.And(_zero(x), _zero(y))
    over = op.Where(steep, op.Neg(x), op.Where(origin, zero, y))
    under = op.Where(steep, y, op.Where(origin, like(1.0, x), x))
    from_vertical = op.Where(op.Less(y, zero), op.Neg(quarter), quarter)
    from_left = op.Where(_is_negative(y), op.Neg(half), half)
    from_horizontal = op.Where(_is_negative(x), from_left, zero)
    return op.Add(op.Atan(op.Div(over, under)), op.Where(steep, from_vertical, from_horizontal))


def _is_negative(x: Any) -> Any:
    """Below 0, or the zero with that sign."""
    zero = like(0.0, x)
    return op.Or(op.Less(x, zero), op.Less(op.Reciprocal(x), zero))


def _sinc(x: Any) -> Any:
    """`aten::sinc`: sin(πx) / (πx), and 1 at 0 with the derivative 0."""
    zero, one = _zero(x), like(1.0, x)
    angle = op.Where(zero, one, op.Mul(x, like(math.pi, x)))
    return op.Where(zero, one, op.Div(op.Sin(angle), angle))


def _log_sigmoid(x: Any) -> Any:
    """`aten::log_sigmoid`: -softplus(-x), which is finite for every x."""
    return op.Neg(op.Softplus(op.Neg(x)))


def _log_add_exp(a: Any, b: Any) -> Any:
    """`aten::logaddexp`: max(a, b) + softplus(-|a - b|)."""
    distance = op.Where(op.Equal(a, b), like(0.0, a), op.Abs(op.Sub(a, b)))
    return op.Add(op.Max(a, b), op.Softplus(op.Neg(distance)))


def _log_add_exp2(a: Any, b: Any) -> Any:
    """`aten::logaddexp2`: the same to the base 2."""
    log_two = like(math.log(2), a)
    return op.Div(_log_add_exp(op.Mul(a, log_two), op.Mul(b, log_two)), log_two)


def _x_log_y(x: Any, y: Any) -> Any:
    """`aten::xlogy`: 0 where x is 0, whatever the logarithm; its derivative there is log y, but 0 where y ≤ 0."""
    return _product_with_log(x, y, y)


def _x_log1p_y(x: Any, y: Any) -> Any:
    """`aten::special_xlog1py`: the same of 1 + y."""
    return _product_with_log(x, op.Add(y, like(1.0, y)), y)


def _product_with_log(x: Any, argument: Any, y: Any) -> Any:
    no_logarithm = op.And(_zero(x), op.LessOrEqual(argument, like(0.0, argument)))
    safe = op.Where(no_logarithm, like(1.0, y), argument)
    return op.Mul(x, op.Log(safe))


def _entropy(x: Any) -> Any:
    """`aten::special_entr`: -x log x, 0 at 0 with an infinite derivative, and -∞ below."""
    zero, minus_infinity = like(0.0, x), like(-math.inf, x)
    positive = op.Greater(x, zero)
    inside = op.Where(positive, x, like(1.0, x))
    # A root of 0, whose derivative is infinite as PyTorch's is here.
    at_zero = op.Sqrt(op.Where(_zero(x), x, like(1.0, x)))
    outside = op.Where(op.Less(x, zero), minus_infinity, at_zero)
    return op.Where(positive, op.Neg(op.Mul(inside, op.Log(inside))), outside)


def _clamp(x: Any, min: float | None = None, max: float | None = None) -> Any:  # noqa: A002  # torch's names
    """`aten::clamp` with numbers: at a limit itself no gradient passes, in every type."""
    low = None if min is None else like(min, x)
    high = None if max is None else like(max, x)
    return op.Clip(x, low, high)


def _clamp_tensor(x: Any, min: Any = None, max: Any = None) -> Any:  # noqa: A002  # torch's names
    """`aten::clamp.Tensor`; torch makes tensors of numbers in some types, which remain limits in the sense above."""
    for limit, several in ((min, op.Max), (max, op.Min)):
        if limit is not None and not len(limit.shape):
            x = op.Clip(x, *((op.CastLike(limit, x),) if limit is min else (None, op.CastLike(limit, x))))
        elif limit is not None:
            x = several(x, op.CastLike(limit, x))
    return x


def _clamp_min_tensor(x: Any, min: Any) -> Any:  # noqa: A002  # torch's name
    return _clamp_tensor(x, min)


def _clamp_max_tensor(x: Any, max: Any) -> Any:  # noqa: A002  # torch's name
    return _clamp_tensor(x, None, max)


def _clamp_min(x: Any, min: float) -> Any:  # noqa: A002  # torch's name
    return _clamp(x, min)


def _clamp_max(x: Any, max: float) -> Any:  # noqa: A002  # torch's name
    return _clamp(x, None, max)


def _vector_norm(x: Any, ord: float = 2.0, dim: Axes = None, keepdim: bool = False, dtype: int = -1) -> Any:  # noqa: A002
    """`aten::linalg_vector_norm`: (Σ|x|ᵖ)^(1/p), with the derivative 0 where the norm is 0, and for elements at 0."""
    if dtype not in (-1, None):
        x = op.Cast(x, to=dtype)
    if math.isinf(ord):
        return _reduced(op.ReduceMax if ord > 0 else op.ReduceMin, op.Abs(x), dim, keepdim)
    if ord == 0.0:
        return _reduced(op.ReduceSum, op.CastLike(op.Not(_zero(x)), x), dim, keepdim)
    if ord in (1.0, 2.0):
        return _reduced(op.ReduceL1 if ord == 1.0 else op.ReduceL2, x, dim, keepdim)
    size, zero, one = op.Abs(x), like(0.0, x), like(1.0, x)
    if 0 < ord < 1:
        # Its derivative is infinite at 0.
        power = op.Where(_zero(x), zero, op.Pow(op.Where(_zero(x), one, size), like(ord, x)))
    else:
        power = op.Pow(size, like(ord, x))
    total = _reduced(op.ReduceSum, power, dim, keepdim)
    vanishes = _zero(total)
    return op.Where(vanishes, zero, op.Pow(op.Where(vanishes, one, total), like(1 / ord, x)))


def _axes(dim: Axes) -> Any:
    """The axes of a reduction; PyTorch's empty list means all of them."""
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        return None
    return op.Constant(value_ints=[dim] if isinstance(dim, int) else list(dim))


def _reduced(reduction: Any, x: Any, dim: Axes, keepdim: bool) -> Any:
    axes = _axes(dim)
    return reduction(x, keepdims=int(keepdim)) if axes is None else reduction(x, axes, keepdims=int(keepdim))


def _deviation(x: Any, dim: Axes = None, correction: float | None = None, keepdim: bool = False) -> Any:
    """`aten::std.correction`: the root of the variance, whose derivative is 0 where the deviation is 0."""
    variance = _variance(x, dim, correction, keepdim)
    vanishes = _zero(variance)
    root = op.Sqrt(op.Where(vanishes, like(1.0, x), variance))
    return op.Where(vanishes, like(0.0, x), root)


def _variance(x: Any, dim: Axes = None, correction: float | None = None, keepdim: bool = False) -> Any:
    """`aten::var.correction`: the squares are divided by their number less the correction, but not by less than 0."""
    correction = 1.0 if correction is None else float(correction)
    centred = op.Sub(x, _reduced(op.ReduceMean, x, dim, True))
    square = op.Mul(centred, centred)
    if correction == 0.0:
        return _reduced(op.ReduceMean, square, dim, keepdim)
    total = _reduced(op.ReduceSum, square, dim, keepdim)
    axes = range(len(x.shape)) if _axes(dim) is None else [dim] if isinstance(dim, int) else list(dim or ())
    sizes = [x.shape[axis] for axis in axes]
    if all(isinstance(size, int) for size in sizes):
        return op.Div(total, like(max(math.prod(sizes) - correction, 0.0), x))
    count = op.CastLike(op.Div(op.Size(x), op.Size(total)), x)
    return op.Div(total, op.Max(op.Sub(count, like(correction, x)), like(0.0, x)))


def _mean(x: Any, dim: Axes = None, correction: float | None = None, keepdim: bool = False) -> Any:
    return _reduced(op.ReduceMean, x, dim, keepdim)


def _of_all(*statistics: Callable[..., Any]) -> Callable[..., Any]:
    """The overload over all elements, `aten::std`."""

    def translation(x: Any, unbiased: bool = True) -> Any:
        found = tuple(statistic(x, None, float(unbiased)) for statistic in statistics)
        return found if len(found) > 1 else found[0]

    return translation


def _along(*statistics: Callable[..., Any]) -> Callable[..., Any]:
    """The overload over some axes, `aten::std.dim`."""

    def translation(x: Any, dim: Axes, unbiased: bool = True, keepdim: bool = False) -> Any:
        found = tuple(statistic(x, dim, float(unbiased), keepdim) for statistic in statistics)
        return found if len(found) > 1 else found[0]

    return translation


def _both(*statistics: Callable[..., Any]) -> Callable[..., Any]:
    """The overload with a correction and two results, `aten::std_mean.correction`."""

    def translation(x: Any, dim: Axes = None, correction: float | None = None, keepdim: bool = False) -> Any:
        return tuple(statistic(x, dim, correction, keepdim) for statistic in statistics)

    return translation


def _binary_cross_entropy_with_logits(
    x: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = 1
) -> Any:
    """`aten::binary_cross_entropy_with_logits`, in a form that no logit makes overflow.

    max(x, 0) - x z + softplus(-|x|); with `pos_weight` p, (1 - z) x + (1 + (p - 1) z) (softplus(-|x|) + max(-x, 0)).
    """
    zero, one = like(0.0, x), like(1.0, x)
    tail = op.Softplus(op.Neg(op.Abs(x)))
    if pos_weight is None:
        loss = op.Add(op.Sub(op.Max(x, zero), op.Mul(x, target)), tail)
    else:
        factor = op.Add(one, op.Mul(op.Sub(pos_weight, one), target))
        loss = op.Add(op.Mul(op.Sub(one, target), x), op.Mul(factor, op.Add(tail, op.Max(op.Neg(x), zero))))
    if weight is not None:
        loss = op.Mul(loss, weight)
    if reduction == 0:
        return loss
    return op.ReduceMean(loss, keepdims=0) if reduction == 1 else op.ReduceSum(loss, keepdims=0)


def _log_cum_sum_exp(x: Any, dim: int) -> Any:
    """`aten::logcumsumexp`, each sum with a maximum of its own: all pairs of positions, as there is no running one."""
    rank = len(x.shape)
    if rank == 0:
        return x
    order = list(range(rank))
    order.append(order.pop(dim))
    rows = op.Transpose(x, perm=order)
    length = op.Shape(rows, start=-1)
    true = onnx.helper.make_tensor("value", onnx.TensorProto.BOOL, [], [True])
    reached = op.Trilu(op.Expand(op.Constant(value=true), op.Concat(length, length, axis=0)), upper=0)
    terms = op.Where(reached, op.Unsqueeze(rows, op.Constant(value_ints=[-2])), like(-math.inf, x))
    total = op.ReduceLogSumExp(terms, op.Constant(value_ints=[-1]), keepdims=0)
    back = list(range(rank - 1))
    back.insert(dim % rank, rank - 1)
    return op.Transpose(total, perm=back)


_aten = torch.ops.aten

TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    _aten.atan2.default: _atan2,
    _aten.binary_cross_entropy_with_logits.default: _binary_cross_entropy_with_logits,
    _aten.clamp.Tensor: _clamp_tensor,
    _aten.clamp.default: _clamp,
    _aten.clamp_max.Tensor: _clamp_max_tensor,
    _aten.clamp_max.default: _clamp_max,
    _aten.clamp_min.Tensor: _clamp_min_tensor,
    _aten.clamp_min.default: _clamp_min,
    _aten.linalg_vector_norm.default: _vector_norm,
    _aten.log_sigmoid.default: _log_sigmoid,
    _aten.logaddexp.default: _log_add_exp,
    _aten.logaddexp2.default: _log_add_exp2,
    _aten.logcumsumexp.default: _log_cum_sum_exp,
    _aten.sinc.default: _sinc,
    _aten.special_entr.default: _entropy,
    _aten.special_xlog1py.default: _x_log1p_y,
    _aten.std.correction: _deviation,
    _aten.std.default: _of_all(_deviation),
    _aten.std.dim: _along(_deviation),
    _aten.std_mean.correction: _both(_deviation, _mean),
    _aten.std_mean.default: _of_all(_deviation, _mean),
    _aten.std_mean.dim: _along(_deviation, _mean),
    _aten.var.correction: _variance,
    _aten.var.default: _of_all(_variance),
    _aten.var.dim: _along(_variance),
    _aten.var_mean.correction: _both(_variance, _mean),
    _aten.var_mean.default: _of_all(_variance, _mean),
    _aten.var_mean.dim: _along(_variance, _mean),
    _aten.xlogy.Tensor: _x_log_y,
}
