"""Rules that use random numbers, with the numbers given, against the equations of their papers."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import GENIE, BGEAdam


def genie(theta, grads, *, lr, gamma=0.95, p=0.4, decay=0.0, noise=None, chance=None):
    a = q = np.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        g = g + decay * theta
        a, q = gamma * a + (1 - gamma) * g, gamma * q + (1 - gamma) * g**2
        s = 1 - gamma**t
        rho = (1 - gamma) * (2 - s) / ((1 + gamma) * s)
        mean = a / s
        var = np.full_like(theta, 1e-8) if t == 1 else (q / s - mean**2) / (1 - rho)
        var = np.where(var > 0, var, 1e-8)
        tau = np.tanh(np.clip(1 / var, 0.0, 10.0))
        osgr = 1 / (1 + np.maximum(rho * var, 1e-8) / (mean**2 + 1e-8))
        move = mean * osgr * tau
        if noise is not None:
            sigma = np.sum(tau * np.abs(mean) * osgr) / np.sum(tau)
            move = (move + (1 - tau) * sigma * noise[t - 1]) * (chance[t - 1] > p) / (1 - p)
        theta = theta - lr * move
    return theta


def bge_adam(theta, grads, *, noise, lr, b1=(0.5, 0.9), b2=(0.9, 0.999), alpha=0.5, weight=0.01, eps=1e-8, decay=0.0):
    m = v = p = np.zeros_like(theta)
    before = None
    for t, g in enumerate(grads, 1):
        g = g + decay * theta
        rate = 0.0 if before is None else min(np.linalg.norm(g - before) / (np.linalg.norm(before) + eps), 1.0)
        before = g
        beta1, beta2 = (low + (high - low) * (1 - rate) for low, high in (b1, b2))
        p = alpha * p + (1 - alpha) * g
        m, v = beta1 * m + (1 - beta1) * p, beta2 * v + (1 - beta2) * p**2
        u = m / (1 - b1[1] ** t) / (np.sqrt(v / (1 - b2[1] ** t)) + eps)
        theta = theta - lr * (1 + weight * noise[t - 1].mean()) * u
    return theta


CASES = {
    "bge_adam": (BGEAdam(0.01), partial(bge_adam, lr=0.01)),
    "bge_adam, other": (
        BGEAdam(
            0.02, beta1_min=0.2, beta1_max=0.8, beta2_min=0.8, beta2_max=0.99, alpha=0.3, entropy_weight=0.5, eps=1e-3
        ),
        partial(bge_adam, lr=0.02, b1=(0.2, 0.8), b2=(0.8, 0.99), alpha=0.3, weight=0.5, eps=1e-3),
    ),
}
GENIE_CASES = {
    "noise": (GENIE(), partial(genie, lr=0.015)),
    "other": (GENIE(0.02, gamma=0.8, p=0.2, weight_decay=0.1), partial(genie, lr=0.02, gamma=0.8, p=0.2, decay=0.1)),
    "deterministic": (GENIE(deterministic=True), partial(genie, lr=0.015)),
}


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_follows_the_equations(rule, reference, assert_follows):
    assert_follows(rule, reference, [(6, 4), (5,)])


@pytest.mark.parametrize(("rule", "reference"), GENIE_CASES.values(), ids=GENIE_CASES)
def test_genie_follows_the_equations(rule, reference, assert_follows):
    # The variance is a difference of squares.
    assert_follows(rule, reference, [(6, 4), (5,)], float64=1e-10, float32=1e-3, smallest=0.1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GENIE(gamma=1.0), "gamma"),
        (lambda: GENIE(p=1.0), "p must"),
        (lambda: BGEAdam(alpha=1.0), "alpha"),
        (lambda: BGEAdam(beta1_max=1.0), "beta1_max"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
