"""PSGD Kron against its equations with the probe given, and what its factors are made of."""

from __future__ import annotations

from functools import partial

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import Kron


def spectral(matrix):
    column = matrix[:, np.argmax(np.sum(matrix**2, axis=0))]
    row = column @ matrix
    return np.linalg.norm(matrix @ (row / np.linalg.norm(row)))


def moved(q, large, small, rate):
    """A factor after a change; those along which only diagonals are kept are diagonal matrices here."""
    if q.ndim == 1:
        large, small = np.diag(large), np.diag(small)
        return q - rate * (large - small) / (large + small).max() * q
    return q - rate * np.triu(large - small) @ q / spectral(large + small)


def kron(
    theta, grads, *, probe, lr, b1=0.9, rate=0.1, scale=1.0, most=8192, share=1.0, least=0.03, fall=0.001, flat=500,
    decay=0.0,
):  # fmt: skip
    shape = theta.shape
    if len(shape) < 2:
        rows, columns, sides = 1, theta.size, 1
    else:
        ends = [(theta.size // shape[-1], shape[-1]), (shape[0], theta.size // shape[0])]
        (rows, columns), sides = ends[0] if ends[0][1] - ends[0][0] <= ends[1][1] - ends[1][0] else ends[1], 2
    triangular = [sides == 2 and 1 < side <= most for side in (rows, columns)]
    left, right = (
        scale ** (1 / sides) * (np.eye(side) if full else np.ones(side))
        for side, full in zip((rows, columns), triangular, strict=True)
    )
    left = left if sides == 2 else np.ones(1)
    m, since = 0.0, 0
    for t, (g, v) in enumerate(zip(grads, probe, strict=True), 1):
        m = b1 * m + (1 - b1) * g
        matrix, v = (m / (1 - b1**t)).reshape(rows, columns), v.reshape(rows, columns)
        since += 1
        if since >= 1 / np.clip(share * np.exp(-fall * (t - 1 - flat)), least, share):
            since = 0
            noisy = matrix + np.sqrt(np.finfo(np.float32).eps) * np.abs(matrix).mean() * v
            full = [np.diag(q) if q.ndim == 1 else q for q in (left, right)]
            white = full[0] @ noisy @ full[1].T
            inner = np.linalg.solve(full[0].T, v) @ np.linalg.inv(full[1])
            if sides == 2:
                left = moved(left, white @ white.T, inner @ inner.T, rate)
            right = moved(right, white.T @ white, inner.T @ inner, rate)
        full = [np.diag(q) if q.ndim == 1 else q for q in (left, right)]
        u = full[0].T @ full[0] @ matrix @ full[1].T @ full[1]
        u = u * min(1.0, 1.1 / (np.sqrt(np.mean(u**2)) + 1e-12))
        theta = theta * (1 - lr * decay) - lr * u.reshape(shape)
    return theta


CASES = {
    "default": (Kron(0.01), partial(kron, lr=0.01)),
    "other": (
        Kron(0.01, beta1=0.6, precond_lr=0.2, precond_init_scale=2.0, max_share=0.4, min_share=0.4, weight_decay=0.1),
        partial(kron, lr=0.01, b1=0.6, rate=0.2, scale=2.0, share=0.4, least=0.4, decay=0.1),
    ),
    "a long side has a vector": (Kron(0.01, max_size_triangular=5), partial(kron, lr=0.01, most=5)),
    "vectors only": (Kron(0.01, max_size_triangular=1), partial(kron, lr=0.01, most=1)),
    "ever more seldom": (
        Kron(0.01, max_share=0.9, min_share=0.1, decay_rate=0.2, flat_start=5),
        partial(kron, lr=0.01, share=0.9, least=0.1, fall=0.2, flat=5),
    ),
}
SHAPES = [(6, 4), (3, 5), (5,), (1,), (2, 3, 4), (4, 2, 3), (1, 4)]


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_follows_the_equations(rule, reference, assert_follows):
    # In float32 the factors bear rounding in all their changes, which follow from each other.
    assert_follows(rule, reference, SHAPES, smallest=0.1, float32=1e-4)


def test_factors_are_triangular_and_equally_large(train, xp, draws):
    start, grads = draws(30, (6, 4), smallest=0.1)
    _, state = train(Kron(0.01), xp, start, lambda _, i: grads[i], 30)
    for side, slot in ((6, "factor_0"), (4, "factor_1")):
        assert state[slot].shape == (side, side)
        np.testing.assert_array_equal(np.tril(state[slot], -1), 0.0)
    np.testing.assert_allclose(np.abs(state["factor_0"]).max(), np.abs(state["factor_1"]).max(), rtol=1e-12)


def test_learns_to_whiten_gradients(train):
    """Where the gradients of a matrix have a covariance that is a Kronecker product, the steps have none."""
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(3, 3)) + 2 * np.eye(3), 3.0 * np.eye(4) + np.eye(4, k=1)
    grads = left @ rng.normal(size=(1500, 3, 4)) @ right
    rule = Kron(0.01, beta1=0.0, precond_lr=0.02)
    _, state = train(rule, numpy_namespace, np.zeros((3, 4)), lambda _, i: grads[i], 1500)
    left, right = (state[slot].T @ state[slot] for slot in ("factor_0", "factor_1"))
    white = left @ grads @ right
    covariance = np.cov(white.reshape(-1, 12).T)
    assert np.abs(covariance - np.eye(12)).max() < 0.5
    assert np.abs(np.cov(grads.reshape(-1, 12).T) - np.eye(12)).max() > 40


@pytest.mark.parametrize("side", [2, 5, 8, 13])
def test_inverts_triangular_factors(side, train, xp):
    """A change from a given factor asks for its inverse: V·R⁻¹ is what the probe becomes."""
    rng = np.random.default_rng(side)
    upper = np.triu(rng.normal(size=(side, side))) + 3 * np.eye(side)
    rule = Kron(0.01, precond_lr=0.5)
    start = np.zeros((1, side))
    slots = {**rule.init(start), "factor_1": upper, "probe": rng.normal(size=(1, side))}
    state = {name: xp.asarray(value) for name, value in slots.items()}
    hyper = {name: xp.asarray(value, dtype=xp.float64) for name, value in rule.hyperparameters().items()}
    zero = xp.asarray(start)
    _, after = rule.update(xp, zero, zero, state, {**hyper, "lr": xp.asarray(0.01, dtype=xp.float64)}, xp.asarray(1))
    inner = slots["probe"] @ np.linalg.inv(upper)
    changed = moved(upper, np.zeros((side, side)), inner.T @ inner, 0.5)
    got = np.asarray(after["factor_1"])
    np.testing.assert_allclose(got / np.abs(got).max(), changed / np.abs(changed).max(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Kron(precond_init_scale=0.0), "scale"),
        (lambda: Kron(max_size_triangular=0), "max_size"),
        (lambda: Kron(max_share=1.5), "max_share"),
        (lambda: Kron(max_share=0.01), "max_share"),
        (lambda: Kron(min_share=0.0), "min_share"),
        (lambda: Kron(decay_rate=-1.0), "decay_rate"),
        (lambda: Kron(flat_start=-1), "flat_start"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
