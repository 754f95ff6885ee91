"""Reductions: the cotangent goes back over the axes that were summed away."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.autodiff.accumulation import accumulate, scattered_along
from edgeopt.autodiff.arrays import expand_like
from edgeopt.autodiff.registry import rule
from edgeopt.autodiff.rules.elementwise import indicator
from edgeopt.tracing import Array, op
from edgeopt.tracing.axes import positions
from edgeopt.tracing.fusing import all_of, fused
from edgeopt.tracing.products import running_product
from edgeopt.tracing.site import Site


def _names_no_axes(n: Site) -> bool:
    """Whether axes are left out, or an empty list; both mean all of them, or none by `noop_with_empty_axes`."""
    axes = n.constant(1)
    return not n.has(1) if axes is None else axes.size == 0


def _with_kept_axes(n: Site, array: Array) -> Array:
    """An array of the output's shape with the reduced axes back as dimensions of size one."""
    if n.attr("keepdims", 1) or n.x.ndim == array.ndim:
        return array
    axes = np.arange(n.x.ndim, dtype=np.int64) if _names_no_axes(n) else n.input(1)
    return op.Unsqueeze(array, axes)


def _reduces_nothing(n: Site) -> bool:
    return _names_no_axes(n) and bool(n.attr("noop_with_empty_axes", 0))


@rule("ReduceSum")
def reduce_sum(n: Site, g: Array) -> Array:
    """Every element counts once."""
    return g if _reduces_nothing(n) else expand_like(_with_kept_axes(n, g), n.x)


@rule("ReduceMean")
def reduce_mean(n: Site, g: Array) -> Array:
    """Every element counts 1/n of the elements reduced."""
    if _reduces_nothing(n):
        return g
    share = _with_kept_axes(n, g) * _fraction(n)
    return expand_like(share, n.x)


def _fraction(n: Site) -> Array | float:
    """Outputs divided by inputs, the weight of one element in a mean."""
    axes = np.arange(n.x.ndim) if _names_no_axes(n) else n.constant(1)
    if axes is not None:
        dims = [n.x.shape[int(axis)] for axis in np.atleast_1d(axes)]
        if all(isinstance(dim, int) for dim in dims):
            # Of no elements nothing is shared.
            return 1.0 / (math.prod(dim for dim in dims if isinstance(dim, int)) or 1)
    count_out, count_in = op.Size(n.y), op.Size(n.x)
    return xp.astype(count_out, n.x.dtype) / xp.astype(count_in, n.x.dtype)


@rule("ReduceSumSquare")
def reduce_sum_square(n: Site, g: Array) -> Array:
    """2 x."""
    return 2.0 * n.x * (g if _reduces_nothing(n) else _with_kept_axes(n, g))


@rule("ReduceL2")
def reduce_l2(n: Site, g: Array) -> Array:
    """x / ‖x‖, and 0 where the norm is 0, as in PyTorch."""
    norm = _with_kept_axes(n, n.y)
    zero = indicator(norm == xp.zeros_like(norm), norm)
    return n.x * (_with_kept_axes(n, g) * (1.0 - zero) / (norm + zero))


@rule("ReduceL1")
def reduce_l1(n: Site, g: Array) -> Array:
    """The sign of each element."""
    return xp.sign(n.x) * (g if _reduces_nothing(n) else _with_kept_axes(n, g))


def _logarithm_may_vanish(_site: Site) -> bool:
    return True


@rule("ReduceLogSum", singular=_logarithm_may_vanish)
def reduce_log_sum(n: Site, g: Array) -> Array:
    """1 / Σ x for every element."""
    if _reduces_nothing(n):
        return g / n.x
    return expand_like(_with_kept_axes(n, g * xp.exp(-n.y)), n.x)


# Up to so many elements, the products of all the others are taken one by one.
_FEW = 32


@rule("ReduceProd")
def reduce_prod(n: Site, g: Array) -> Array:
    """The product of the others, as a product and so right for every derivative, even where several are zero.

    Where axes are not known before the run, the product is divided instead, and zeros are counted: second derivatives
    at exact zeros are wrong then.
    """
    if _reduces_nothing(n):
        return g
    known = np.arange(n.x.ndim) if _names_no_axes(n) else n.constant(1)
    if known is not None:
        reduced = sorted({int(axis) % n.x.ndim for axis in known.reshape(-1)}) if n.x.ndim else []
        if reduced and 0 not in [n.x.shape[axis] for axis in reduced]:
            return _products_of_others(n.x, reduced) * _with_kept_axes(n, g)
    axes = n.input(1) if n.has(1) else None
    zero = indicator(n.x == xp.zeros_like(n.x), g)
    count = op.ReduceSum(zero, axes, keepdims=1)
    none, one = indicator(count < 0.5, g), indicator(xp.abs(count - 1.0) < 0.5, g)
    # A zero replaced by one is left out of the product.
    without_zeros = n.x + zero
    product = op.ReduceProd(without_zeros, axes, keepdims=1)
    others = product / without_zeros * (zero * one + (1.0 - zero) * none)
    return others * _with_kept_axes(n, g)


def _products_of_others(x: Array, reduced: list[int]) -> Array:
    """For each element the product of the others over the reduced axes."""
    kept = [axis for axis in range(x.ndim) if axis not in reduced]
    order = [*kept, *reduced]
    turned = op.Transpose(x, perm=order)
    sizes = [x.shape[axis] for axis in reduced]
    count = math.prod(size for size in sizes if isinstance(size, int))
    is_known = all(isinstance(size, int) for size in sizes)
    rows = op.Reshape(turned, [0] * len(kept) + [count if is_known else -1])
    if is_known and count > _FEW:
        before = running_product(rows, len(kept), count, exclusive=True)
        products = before * running_product(rows, len(kept), count, reverse=True, exclusive=True)
    else:
        # Of an unknown number, as of few, all pairs.
        at = positions(rows, len(kept))
        itself = op.Unsqueeze(at, [0]) == op.Unsqueeze(at, [1])
        factors = op.Where(itself, x.tracer.constant(1.0, x.dtype), op.Unsqueeze(rows, [len(kept)]))
        products = op.ReduceProd(factors, [-1], keepdims=0)
    products = op.Reshape(products, op.Shape(turned))
    return op.Transpose(products, perm=[int(i) for i in np.argsort(order)]).with_shape(x.shape)


@rule("CumSum")
def cum_sum(n: Site, g: Array) -> Array:
    """The sum from the other end."""
    reverse, exclusive = n.attr("reverse", 0), n.attr("exclusive", 0)
    return op.CumSum(g, n.input(1), reverse=1 - reverse, exclusive=exclusive)


# Through these an element stays what it was, or is near it.
_ELEMENTWISE = frozenset({"Add", "Cast", "Div", "Expand", "Identity", "Mul", "Neg", "Reshape", "Sub", "Transpose"})
_ELEMENTWISE |= {"Squeeze", "Unsqueeze", "Where"}


def _may_be_masked_out(n: Site) -> bool:
    """Whether a Where puts infinities into the input: over a row of nothing else, value and derivative are NaN.

    The softmax of masked attention is such a case. Others are not asked, because a selection behind them costs as much
    as the softmax itself.
    """
    pending, seen = [n.x.value], set[ir.Value]()
    while pending:
        value = pending.pop()
        node = value.producer()
        if value in seen or node is None or node.op_type not in _ELEMENTWISE:
            continue
        seen.add(value)
        operands = [operand for operand in node.inputs if operand is not None]
        if node.op_type == "Where":
            known = [ir.convenience.get_const_tensor(operand) for operand in operands[1:]]
            if any(tensor is not None and not np.all(np.isfinite(tensor.numpy())) for tensor in known):
                return True
        pending += operands
    return False


@rule("ReduceLogSumExp", singular=_may_be_masked_out)
def reduce_log_sum_exp(n: Site, g: Array) -> Array:
    """The softmax over the reduced axes."""
    return xp.exp(n.x - _with_kept_axes(n, n.y)) * _with_kept_axes(n, g)


@rule("ReduceMax", "ReduceMin")
def reduce_extremum(n: Site, g: Array) -> Array:
    """The extreme elements share the gradient equally, as in torch.amax."""
    if _reduces_nothing(n):
        return g
    extreme = indicator(n.x == _with_kept_axes(n, n.y), g)
    axes = n.input(1) if n.has(1) else None
    count = op.ReduceSum(extreme, axes, keepdims=1)
    return extreme * (_with_kept_axes(n, g) / count)


@rule("Softmax", singular=_may_be_masked_out)
def softmax(n: Site, g: Array) -> Array:
    """y (g - Σ g y)."""
    axis = n.attr("axis", -1)

    def plain(g: Array, y: Array) -> Array:
        weighted = g * y
        return weighted - y * op.ReduceSum(weighted, [axis], keepdims=1)

    # Over another axis than the last there is no kernel.
    return all_of(fused("SoftmaxGrad", [g, n.y], plain))[0] if axis in (-1, n.y.ndim - 1) else plain(g, n.y)


@rule("LogSoftmax", singular=_may_be_masked_out)
def log_softmax(n: Site, g: Array) -> Array:
    """g - exp(y) Σ g."""
    axis = n.attr("axis", -1)
    picked = scattered_along(g, axis)
    if picked is not None:
        # Of a loss that looks at one class: nothing else of the cotangent needs to be made.
        return accumulate([g, xp.exp(n.y) * -op.ReduceSum(picked, [axis], keepdims=1)])

    def plain(g: Array, y: Array) -> Array:
        return g - xp.exp(y) * op.ReduceSum(g, [axis], keepdims=1)

    return all_of(fused("LogSoftmaxGrad", [g, n.y], plain))[0] if axis in (-1, n.y.ndim - 1) else plain(g, n.y)
