"""Matrix products, with transposes folded into Gemm's flags."""

from __future__ import annotations

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.arrays import reshape_like, sum_like, transpose_last
from edgeopt.autodiff.registry import rule
from edgeopt.tracing import Array, op
from edgeopt.tracing.shapes import broadcast
from edgeopt.tracing.site import Site


@rule("Gemm")
def gemm(n: Site, g: Array) -> tuple[Array | None, Array | None, Array | None]:
    """Y = alpha A' B' + beta C."""
    a, b = n.input(0), n.input(1)
    alpha, beta = n.number("alpha", 1.0), n.number("beta", 1.0)
    trans_a, trans_b = n.attr("transA", 0), n.attr("transB", 0)
    to_a = to_b = to_c = None
    if n.needs[0]:
        if trans_a:
            to_a = op.Gemm(b, g, alpha=alpha, transA=trans_b, transB=1)
        else:
            to_a = op.Gemm(g, b, alpha=alpha, transB=1 - trans_b)
        to_a = to_a.with_shape(a.shape)
    if n.needs[1]:
        if trans_b:
            to_b = op.Gemm(g, a, alpha=alpha, transA=1, transB=trans_a)
        else:
            to_b = op.Gemm(a, g, alpha=alpha, transA=1 - trans_a)
        to_b = to_b.with_shape(b.shape)
    if n.has(2) and n.needs[2]:
        summed = sum_like(g, n.input(2), n.y.shape)
        to_c = summed if beta == 1.0 else summed * beta
    return to_a, to_b, to_c


@rule("MatMul")
def matmul(n: Site, g: Array) -> tuple[Array | None, Array | None]:
    """A B over broadcast leading dimensions; vectors are matrices with a dimension that is taken out again."""
    a, b = n.input(0), n.input(1)
    if a.ndim == 1 or b.ndim == 1:
        return _matmul_with_vector(n, a, b, g)
    if b.ndim == 2:
        return _matmul_with_matrix(n, a, b, g)
    to_a = to_b = None
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    if n.needs[0]:
        to_a = sum_like(xp.matmul(g, transpose_last(b)), a, (*batch, *a.shape[-2:]))
    if n.needs[1]:
        to_b = sum_like(xp.matmul(transpose_last(a), g), b, (*batch, *b.shape[-2:]))
    return to_a, to_b


def _matmul_with_matrix(n: Site, a: Array, b: Array, g: Array) -> tuple[Array | None, Array | None]:
    """The weight of a layer on the right: rows of all leading dimensions are one long matrix."""
    rows_a = a if a.ndim == 2 else _rows(a)
    rows_g = g if g.ndim == 2 else _rows(g)
    to_a = to_b = None
    if n.needs[0]:
        to_a = reshape_like(op.Gemm(rows_g, b, transB=1), a)
    if n.needs[1]:
        to_b = op.Gemm(rows_a, rows_g, transA=1).with_shape(b.shape)
    return to_a, to_b


def _rows(x: Array) -> Array:
    last = x.shape[-1]
    if isinstance(last, int):
        return op.Reshape(x, [-1, last])
    return op.Reshape(x, op.Concat(np.asarray([-1], np.int64), op.Shape(x, start=-1), axis=0)).with_shape((None, last))


def _matmul_with_vector(n: Site, a: Array, b: Array, g: Array) -> tuple[Array | None, Array | None]:
    matrix_a = xp.expand_dims(a, axis=0) if a.ndim == 1 else a
    matrix_b = xp.expand_dims(b, axis=1) if b.ndim == 1 else b
    if b.ndim == 1:
        g = xp.expand_dims(g, axis=-1)
    if a.ndim == 1:
        g = xp.expand_dims(g, axis=-2)
    batch = broadcast(matrix_a.shape[:-2], matrix_b.shape[:-2])
    to_a = to_b = None
    if n.needs[0]:
        product = xp.matmul(g, transpose_last(matrix_b))
        to_a = reshape_like(sum_like(product, matrix_a, (*batch, *matrix_a.shape[-2:])), a)
    if n.needs[1]:
        product = xp.matmul(transpose_last(matrix_a), g)
        to_b = reshape_like(sum_like(product, matrix_b, (*batch, *matrix_b.shape[-2:])), b)
    return to_a, to_b
