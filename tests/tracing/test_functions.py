"""Every function of the namespace against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgeopt import tracing as xp
from edgeopt.errors import TracingError
from edgeopt.tracing import Tracer, functions

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-3, 3, (3, 4)).astype(np.float32)
Y = RANDOM.uniform(-3, 3, (3, 4)).astype(np.float32)
ROW = RANDOM.uniform(-3, 3, (4,)).astype(np.float32)
POSITIVE = np.abs(X) + np.float32(0.1)
SPECIAL = np.asarray([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan], np.float32)
FLAGS, OTHER_FLAGS = X > 0, Y > 0
INTEGERS = np.asarray([[3, 1, 2], [0, 2, 2]], np.int64)

Row = tuple[str, Callable[..., Any], Callable[..., Any], list[Any]]


def same(name: str, *arrays: Any, numpy_name: str | None = None, **keywords: Any) -> Row:
    """A function that numpy has under this name, or under another."""
    ours, theirs = getattr(xp, name), getattr(np, numpy_name or name)
    return (name, lambda *x: ours(*x, **keywords), lambda *x: theirs(*x, **keywords), list(arrays))


ROWS: list[Row] = [
    *(same(name, X) for name in ("abs", "sign", "exp", "sin", "cos", "tanh", "floor", "square")),
    *(same(name, POSITIVE) for name in ("sqrt", "log", "log1p")),
    same("log1p", np.asarray([1e-10, -1e-10, 1e-20, 0.0, 0.5, -0.5, 1e10], np.float64)),
    same("log1p", np.asarray([1e-6, -1e-6, 3e-8, 0.0, 100.0], np.float32)),
    same("isnan", SPECIAL),
    same("isfinite", SPECIAL),
    same("logical_not", FLAGS),
    same("multiply", X, Y),
    same("multiply", X, ROW),
    same("maximum", X, ROW),
    same("minimum", X, ROW),
    same("maximum", SPECIAL, np.float32(0)),
    same("equal", X, X),
    same("equal", INTEGERS, np.asarray([[3, 0, 2]])),
    same("not_equal", INTEGERS, np.asarray([[3, 0, 2]])),
    *(same(name, X, Y) for name in ("less", "less_equal", "greater", "greater_equal")),
    same("logical_and", FLAGS, OTHER_FLAGS),
    same("logical_or", FLAGS, OTHER_FLAGS),
    same("matmul", X, Y.T.copy()),
    same("matmul", RANDOM.standard_normal((2, 3, 4)), RANDOM.standard_normal((4, 2))),
    ("pow", lambda x: xp.pow(x, 3.0), lambda x: x**3, [X]),
    ("pow", lambda x: xp.pow(x, 2), lambda x: x**2, [X]),
    ("pow", lambda x: xp.pow(2.0, x), lambda x: np.float32(2) ** x, [X]),
    ("pow", xp.pow, np.power, [POSITIVE, ROW]),
    same("where", FLAGS, X, Y),
    ("where", lambda c, x: xp.where(c, x, 0.0), lambda c, x: np.where(c, x, np.float32(0)), [FLAGS, X]),
    ("where", lambda c, x: xp.where(c, float("nan"), x), lambda c, x: np.where(c, np.float32("nan"), x), [FLAGS, X]),
    ("clip", lambda x: xp.clip(x, -1.0, 1.0), lambda x: np.clip(x, -1, 1), [X]),
    ("clip", lambda x: xp.clip(x, min=-1.0), lambda x: np.clip(x, -1, None), [X]),
    ("clip", lambda x: xp.clip(x, max=1.0), lambda x: np.clip(x, None, 1), [X]),
    ("clip", lambda x: xp.clip(x, 0, 2), lambda x: np.clip(x, 0, 2), [INTEGERS]),
    ("clip", lambda x: xp.clip(x, -1.0, 1.0), lambda x: np.clip(x, -1, 1), [SPECIAL]),
    *(
        same(name, X, axis=axis, keepdims=keepdims)
        for name in ("sum", "mean", "max", "min")
        for axis, keepdims in ((None, False), (0, False), (-1, True), ((0, 1), False), (None, True), ((), False))
    ),
    *(same(name, np.float32(3)) for name in ("sum", "mean", "max", "min")),
    same("sum", INTEGERS, axis=1),
    ("log_softmax", lambda x: xp.log_softmax(x, 1), lambda x: x - np.log(np.exp(x).sum(1, keepdims=True)), [X]),
    ("log_softmax", lambda x: xp.log_softmax(x, 0), lambda x: x - np.log(np.exp(x).sum(0)), [X * 10]),
    ("logsumexp", lambda x: xp.logsumexp(x, axis=1), lambda x: np.log(np.exp(x).sum(1)), [X]),
    ("logsumexp", lambda x: xp.logsumexp(x, axis=1, keepdims=True), lambda x: x, [X[:, :1] * 100]),
    *(same(name, FLAGS, axis=axis) for name in ("any", "all") for axis in (None, 0, 1)),
    ("top_k", lambda x: xp.top_k(x, 2)[0], lambda x: -np.sort(-x)[..., :2], [np.floor(X)]),
    ("top_k", lambda x: xp.top_k(x, 2)[1], lambda x: np.argsort(-x, axis=-1, kind="stable")[..., :2], [np.floor(X)]),
    (
        "scatter",
        lambda x, values: xp.scatter(x, 1, np.asarray([[0, 2], [1, 3], [3, 0]]), values),
        lambda x, values: np.stack(
            [
                np.r_[values[0, 0], x[0, 1], values[0, 1], x[0, 3]],
                np.r_[x[1, 0], values[1, 0], x[1, 2], values[1, 1]],
                np.r_[values[2, 1], x[2, 1:3], values[2, 0]],
            ]
        ),
        [X, Y[:, :2]],
    ),
    same("argmax", X, axis=1),
    same("argmax", np.floor(X), axis=0),
    ("argmax", lambda x: xp.argmax(x, axis=1, keepdims=True), lambda x: np.argmax(x, 1, keepdims=True), [np.floor(X)]),
    ("asarray", lambda x: xp.asarray(x), lambda x: x, [X]),
    ("asarray", lambda x: xp.asarray(x, dtype=xp.float64), lambda x: x.astype(np.float64), [X]),
    *(
        ("astype", lambda x, d=dtype: xp.astype(x, d), lambda x, d=dtype: x.astype(d), [array])
        for array in (X, INTEGERS, FLAGS)
        for dtype in (xp.float32, xp.float64, xp.int32, xp.int64)
    ),
    ("astype", lambda x: xp.astype(x, xp.bool), lambda x: x.astype(np.bool_), [INTEGERS]),
    ("arange", lambda x: x + xp.arange(4, dtype=xp.float32), lambda x: x + np.arange(4, dtype=np.float32), [X]),
    ("arange", lambda x: x * xp.arange(1, 8, 2), lambda x: x * np.arange(1, 8, 2), [INTEGERS[:, :1]]),
    ("zeros_like", xp.zeros_like, np.zeros_like, [X]),
    ("ones_like", lambda x: xp.ones_like(x, dtype=xp.int64), lambda x: np.ones_like(x, dtype=np.int64), [X]),
    ("full_like", lambda x: xp.full_like(x, 2.5), lambda x: np.full_like(x, 2.5), [X]),
    ("full_like", lambda x: xp.full_like(x, 2.5), lambda x: np.full_like(x, 2.5), [np.float32(1)]),
    ("reshape", lambda x: xp.reshape(x, (2, -1)), lambda x: x.reshape(2, -1), [X]),
    ("permute_dims", lambda x: xp.permute_dims(x, (1, 0)), lambda x: x.T, [X]),
    ("expand_dims", lambda x: xp.expand_dims(x, axis=1), lambda x: x[:, None], [X]),
    ("expand_dims", lambda x: xp.expand_dims(x, axis=-1), lambda x: x[..., None], [X]),
    ("squeeze", lambda x: xp.squeeze(x, 0), lambda x: x[0], [X[:1]]),
    ("squeeze", lambda x: xp.squeeze(x, (0, 1)), lambda x: x[0, 0], [X[:1, :1]]),
    ("broadcast_to", lambda x: xp.broadcast_to(x, (3, 4)), lambda x: np.broadcast_to(x, (3, 4)), [ROW]),
    ("concat", lambda x, y: xp.concat([x, y]), lambda x, y: np.concatenate([x, y]), [X, Y]),
    ("concat", lambda x, y: xp.concat([x, y], axis=-1), lambda x, y: np.concatenate([x, y], -1), [X, Y]),
    ("stack", lambda x, y: xp.stack([x, y]), lambda x, y: np.stack([x, y]), [X, Y]),
    ("stack", lambda x, y: xp.stack([x, y], axis=-1), lambda x, y: np.stack([x, y], -1), [X, Y]),
    ("take", lambda x, i: xp.take(x, i, axis=1), lambda x, i: np.take(x, i, 1), [X, INTEGERS]),
    ("take", lambda x: xp.take(x, np.asarray([2, 0]), axis=0), lambda x: x[[2, 0]], [X]),
    (
        "take_along_axis",
        lambda x, i: xp.take_along_axis(x, i, axis=1),
        lambda x, i: np.take_along_axis(x, i, 1),
        [X[:2], INTEGERS],
    ),
    ("stop_gradient", xp.stop_gradient, lambda x: x, [X]),
]


@pytest.mark.parametrize(
    ("name", "function", "reference", "arrays"), ROWS, ids=[f"{r[0]}-{i}" for i, r in enumerate(ROWS)]
)
def test_results_are_numpys(
    name: str,
    function: Callable[..., Any],
    reference: Callable[..., Any],
    arrays: list[Any],
    run_both: Callable[..., tuple[Any, Any]],
) -> None:
    with np.errstate(all="ignore"):
        expected = np.asarray(reference(*arrays))
        results = run_both(function, arrays)
    for result in results:
        assert result.shape == expected.shape
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "function", "reference", "arrays"), ROWS, ids=[f"{r[0]}-{i}" for i, r in enumerate(ROWS)]
)
def test_without_traced_operands_numpy_computes_at_once(
    name: str, function: Callable[..., Any], reference: Callable[..., Any], arrays: list[Any]
) -> None:
    with np.errstate(all="ignore"):
        result, expected = function(*arrays), reference(*arrays)
    assert isinstance(result, (np.ndarray, np.generic))
    np.testing.assert_allclose(np.asarray(result), np.asarray(expected), rtol=1e-6, atol=1e-6, equal_nan=True)


def test_every_function_has_a_row() -> None:
    dtypes = {"bool", "float32", "float64", "int16", "int32", "int64", "int8", "uint8"}
    constants = {"finfo", "inf", "nan", "pi", *dtypes}
    assert {row[0] for row in ROWS} == set(functions.__all__) - constants


def test_log1p_is_accurate_where_the_sum_would_round(run_both: Callable[..., tuple[Any, Any]]) -> None:
    x = np.asarray([1e-17, -1e-17, 1e-12, 1e-8, 0.1, -0.9, 1e300])
    for result in run_both(xp.log1p, [x]):
        np.testing.assert_allclose(result, np.log1p(x), rtol=3e-16)


def test_named_dimensions_survive(tracer: Tracer) -> None:
    x, row = tracer.input("x", np.float32, ("batch", 4)), tracer.input("row", np.float32, (4,))
    assert (x + row).shape == ("batch", 4)
    assert xp.exp(x * 2.0).shape == ("batch", 4)
    assert xp.sum(x, axis=1).shape == ("batch",)
    assert xp.sum(x, axis=0, keepdims=True).shape == (1, 4)
    assert xp.zeros_like(x).shape == ("batch", 4)
    assert xp.where(x > row, x, row).shape == ("batch", 4)
    assert xp.matmul(x, tracer.input("w", np.float32, (4, 2))).shape == ("batch", 2)
    assert xp.permute_dims(x, (1, 0)).shape == (4, "batch")
    assert xp.expand_dims(x, axis=0).shape == (1, "batch", 4)
    assert xp.sum(x).shape == ()


@pytest.mark.parametrize("size", [1, 5])
def test_one_graph_serves_every_size(size: int, run_both: Callable[..., tuple[Any, Any]]) -> None:
    def program(x: Any) -> Any:
        return xp.sum(xp.exp(x), axis=0) / xp.sum(xp.ones_like(x))

    x = RANDOM.standard_normal((size, 3))
    for result in run_both(program, [x], {0: ("batch", 3)}):
        np.testing.assert_allclose(result, np.exp(x).sum(0) / x.size)


def test_two_scalars_are_no_choice(tracer: Tracer) -> None:
    x = tracer.input("x", np.float32, (3,))
    with pytest.raises(TracingError, match="at least one array"):
        xp.where(x > 0.0, 1.0, 0.0)
