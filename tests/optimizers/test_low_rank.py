"""Rules with moments of a projected gradient, with the projection given, and the projection itself."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import APOLLO, Adam, APOLLOMini, Fira, GaLore


def start_basis(size, rank):
    return np.linalg.qr(np.random.default_rng(0).standard_normal((size, rank)))[0]


def galore(theta, grads, *, lr, rank, b1=0.9, b2=0.999, eps=1e-6, scale=0.25, decay=0.0, every=200, rounds=4):
    rows, columns = theta.shape[0], theta[0].size
    tall, rank = rows >= columns, min(rank, rows, columns)
    basis, m, v = start_basis(min(rows, columns), rank), 0.0, 0.0
    for t, g in enumerate(grads, 1):
        matrix = g.reshape(rows, columns)
        if (t - 1) % every == 0:
            square = matrix.T @ matrix if tall else matrix @ matrix.T
            for _ in range(rounds):
                q, r = np.linalg.qr(square @ basis)
                basis = q * np.sign(np.diag(r))  # the directions before, not their opposites
        low = matrix @ basis if tall else basis.T @ matrix
        m, v = b1 * m + (1 - b1) * low, b2 * v + (1 - b2) * low**2
        step = m / (np.sqrt(v) + eps)
        step = step @ basis.T if tall else basis @ step
        theta = theta - scale * lr * np.sqrt(1 - b2**t) / (1 - b1**t) * step.reshape(theta.shape)
        theta = theta * (1 - lr * decay)
    return theta


def fira(theta, grads, *, lr, rank, b1=0.9, b2=0.999, eps=1e-6, scale=1.0, decay=0.0, every=200, rounds=4):
    rows, columns = theta.shape[0], theta[0].size
    tall, rank = rows >= columns, min(rank, rows, columns)
    basis, m, v, before = start_basis(min(rows, columns), rank), 0.0, 0.0, None
    for t, g in enumerate(grads, 1):
        matrix = g.reshape(rows, columns) if tall else g.reshape(rows, columns).T  # always tall
        if (t - 1) % every == 0:
            for _ in range(rounds):
                q, r = np.linalg.qr(matrix.T @ matrix @ basis)
                basis = q * np.sign(np.diag(r))
        low = matrix @ basis
        m, v = b1 * m + (1 - b1) * low, b2 * v + (1 - b2) * low**2
        step = m / (np.sqrt(v) + eps)
        ratio = np.linalg.norm(step, axis=1) / (np.linalg.norm(low, axis=1) + 1e-8)
        rest = ratio[:, None] * (matrix - low @ basis.T)
        if before is not None:
            rest = rest / (max(float(np.linalg.norm(rest)) / (before + 1e-8), 1.01) / 1.01)
        before = float(np.linalg.norm(rest))
        step = step @ basis.T + rest
        step = (step if tall else step.T).reshape(theta.shape)
        theta = theta - scale * lr * np.sqrt(1 - b2**t) / (1 - b1**t) * step
        theta = theta * (1 - lr * decay)
    return theta


def apollo(theta, grads, *, projection, lr, rank, scale=1.0, eps=1e-6, decay=0.0, every=200, channel=True):
    rows, columns = theta.shape[0], theta[0].size
    tall, b1, b2 = rows >= columns, 0.9, 0.999
    axis = ((1,) if tall else (0,)) if channel else None
    m = v = before = 0.0
    for t, g in enumerate(grads, 1):
        matrix = g.reshape(rows, columns)
        if (t - 1) % every == 0:
            p = projection[t - 1] / np.sqrt(p_rank := projection[t - 1].shape[1])
            assert p_rank <= rank
        low = matrix @ p if tall else p.T @ matrix
        m, v = b1 * m + (1 - b1) * low, b2 * v + (1 - b2) * low**2
        size = np.sqrt(np.sum((m / (np.sqrt(v) + eps)) ** 2, axis=axis, keepdims=True))
        scaled = matrix * size / (np.sqrt(np.sum(low**2, axis=axis, keepdims=True)) + 1e-8)
        norm = float(np.linalg.norm(scaled))
        if t > 1:
            limiter = float(np.maximum(norm / (before + 1e-8), 1.01)) / 1.01
            scaled, norm = scaled / limiter, norm / limiter
        before = norm
        theta = theta - np.sqrt(scale) * lr * np.sqrt(1 - b2**t) / (1 - b1**t) * scaled.reshape(theta.shape)
        theta = theta * (1 - lr * decay)
    return theta


CASES = {
    "galore": (GaLore(0.01, rank=2), partial(galore, lr=0.01, rank=2)),
    "galore, other": (
        GaLore(
            0.02, rank=3, update_proj_gap=10, iterations=2, scale=1.0, beta1=0.6, beta2=0.9, eps=1e-3, weight_decay=0.1
        ),
        partial(galore, lr=0.02, rank=3, every=10, rounds=2, scale=1.0, b1=0.6, b2=0.9, eps=1e-3, decay=0.1),
    ),
    "fira": (Fira(0.01, rank=2), partial(fira, lr=0.01, rank=2)),
    "fira, other": (
        Fira(
            0.02, rank=1, update_proj_gap=10, iterations=2, scale=0.5, beta1=0.6, beta2=0.9, eps=1e-3, weight_decay=0.1
        ),
        partial(fira, lr=0.02, rank=1, every=10, rounds=2, scale=0.5, b1=0.6, b2=0.9, eps=1e-3, decay=0.1),
    ),
    "apollo": (APOLLO(0.01), partial(apollo, lr=0.01, rank=256)),
    "apollo, other": (
        APOLLO(0.02, rank=2, update_proj_gap=10, scale=4.0, eps=1e-3, weight_decay=0.1),
        partial(apollo, lr=0.02, rank=2, every=10, scale=4.0, eps=1e-3, decay=0.1),
    ),
    "apollo-mini": (APOLLOMini(0.01), partial(apollo, lr=0.01, rank=1, scale=128.0, channel=False)),
}


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_follows_the_equations(rule, reference, assert_follows):
    # A refreshed basis is as exact as the gap between singular values lets it be.
    tolerance = {"float64": 1e-9, "float32": 1e-3} if isinstance(rule, GaLore) else {"float32": 1e-4}
    assert_follows(rule, reference, [(6, 4), (3, 5), (4, 2, 3)], smallest=0.1, **tolerance)


@pytest.mark.parametrize(
    "rule", [GaLore(0.01), Fira(0.01), APOLLO(0.01), APOLLOMini(0.01)], ids=lambda rule: type(rule).__name__
)
def test_vectors_are_left_to_adam(rule, train, xp, draws):
    start, grads = draws(5, (6,))
    param, _ = train(rule, xp, start, lambda _, i: grads[i], 5)
    expected, _ = train(Adam(0.01, eps=1e-6, eps_hat=True), xp, start, lambda _, i: grads[i], 5)
    np.testing.assert_allclose(param, expected, rtol=1e-12)


def test_of_full_rank_fira_is_galore(train, xp, draws):
    start, grads = draws(5, (6, 4), smallest=0.1)
    param, state = train(Fira(0.01), xp, start, lambda _, i: grads[i], 5)
    expected, slots = train(GaLore(0.01, scale=1.0), xp, start, lambda _, i: grads[i], 5)
    np.testing.assert_array_equal(param, expected)
    assert list(state) == list(slots)


@pytest.mark.parametrize("shape", [(12, 8), (8, 12)], ids=str)
def test_the_projector_spans_the_largest_singular_vectors(shape, train, xp):
    rng = np.random.default_rng(3)
    left, values, right = np.linalg.svd(rng.normal(size=shape), full_matrices=False)
    grad = (left * np.where(np.arange(8) < 3, values, 0.05 * values)) @ right
    _, state = train(GaLore(rank=3, iterations=6), xp, np.zeros(shape), lambda _, i: grad, 1)
    exact = right[:3].T if shape[0] > shape[1] else left[:, :3]
    basis = state["projector"]
    np.testing.assert_allclose(basis.T @ basis, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(basis @ basis.T, exact @ exact.T, atol=1e-9)


def test_state_has_the_size_of_the_projection():
    param = np.zeros((40, 30), np.float32)
    for rule in (GaLore(rank=4), Fira(rank=4), APOLLO(rank=4)):
        slots = rule.init(param)
        assert slots["exp_avg"].shape == slots["exp_avg_sq"].shape == (40, 4)
        assert slots["projector"].shape == (30, 4)
    assert APOLLOMini().init(param.T)["exp_avg"].shape == (1, 40)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaLore(rank=0), "rank"),
        (lambda: GaLore(update_proj_gap=0), "update_proj_gap"),
        (lambda: GaLore(iterations=0), "iterations"),
        (lambda: APOLLO(scale_type="row"), "scale_type"),  # type: ignore[arg-type] # wrong on purpose
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
