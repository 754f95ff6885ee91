"""Dion against its equations, with the QR factorisation that it does without."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import Dion


def dion(theta, grads, *, lr, momentum=0.95, eps=1e-8, rank=128, decay=0.01):
    shape = theta.shape
    rows, columns = (shape[0], theta.size // shape[0]) if theta.ndim > 1 else (1, theta.size)
    theta, rank = theta.reshape(rows, columns), min(rank, rows, columns)
    q, buffer = np.random.default_rng(0).standard_normal((columns, rank)), np.zeros((rows, columns))
    for g in grads:
        buffer = buffer + g.reshape(rows, columns)
        p = np.linalg.qr(buffer @ q)[0]
        r = buffer.T @ p
        buffer = buffer - (1 - momentum) * p @ r.T
        q = r / (np.linalg.norm(r, axis=0) + eps)
        theta = theta * (1 - lr * decay) - lr * np.sqrt(rows / columns) * p @ q.T
    return theta.reshape(shape)


CASES = {
    "whole": (Dion(0.01), partial(dion, lr=0.01)),
    "of low rank": (
        Dion(0.01, momentum=0.7, rank=2, weight_decay=0.1),
        partial(dion, lr=0.01, momentum=0.7, rank=2, decay=0.1),
    ),
    "of rank one": (Dion(0.01, rank=1, eps=1e-3), partial(dion, lr=0.01, rank=1, eps=1e-3)),
}


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_follows_the_equations(rule, reference, assert_follows):
    # Full rank from the first gradient on: where columns are missing, each factorisation makes up its own.
    assert_follows(rule, reference, [(6, 5), (4, 6), (5, 5), (5,), (5, 2, 3)], smallest=0.1, float32=1e-4)


def test_of_full_rank_it_takes_the_polar_factor_of_a_gradient_that_stays(train, xp):
    rng = np.random.default_rng(4)
    left, right = np.linalg.qr(rng.normal(size=(6, 6)))[0], np.linalg.qr(rng.normal(size=(4, 4)))[0]
    grad = left[:, :4] * [8.0, 4.0, 2.0, 1.0] @ right
    before, after = (
        train(Dion(1.0, weight_decay=0.0), xp, np.zeros((6, 4)), lambda *_: grad, steps)[0] for steps in (80, 81)
    )
    np.testing.assert_allclose(before - after, np.sqrt(6 / 4) * left[:, :4] @ right, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_begins_where_there_is_a_gradient(dtype, train, xp, draws):
    start, grads = draws(8, (4, 3), dtype, smallest=0.1)
    param, state = train(Dion(0.1), xp, start, lambda _, i: grads[i] if i > 2 else 0 * start, 8)
    assert np.isfinite(param).all()
    assert np.linalg.matrix_rank(state["basis"]) == 3
    assert not np.array_equal(param, start)


def test_bears_gradients_of_less_than_its_rank(train, xp):
    rng = np.random.default_rng(2)
    grads = np.einsum("ti,tj->tij", rng.normal(size=(4, 6)), rng.normal(size=(4, 5)))
    param, state = train(Dion(0.1, weight_decay=0.0), xp, np.zeros((6, 5)), lambda _, i: grads[i], 4)
    assert all(np.isfinite(array).all() for array in (param, *state.values()))
    # After one gradient a product of two vectors, and not what rounding makes of the other directions.
    param, state = train(Dion(0.1, weight_decay=0.0), xp, np.zeros((6, 5)), lambda _, i: grads[i], 1)
    assert np.linalg.matrix_rank(param) == 1
    assert np.count_nonzero(np.abs(state["basis"]).max(axis=0)) == 1


@pytest.mark.parametrize("settings", [{"momentum": 1.5}, {"rank": 0}, {"eps": -1.0}], ids=str)
def test_impossible_settings_are_refused(settings):
    (name,) = settings
    with pytest.raises(ConfigurationError, match=name):
        Dion(**settings)
