"""Coin betting against its equations."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import COCOB


def cocob(theta, grads, *, lr=1.0, alpha=100.0, eps=1e-8, decay=0.0):
    start, largest = theta, np.full_like(theta, eps)
    summed = reward = bet = np.zeros_like(theta)
    for g in grads:
        g = lr * (g + decay * theta)
        largest, summed = np.maximum(largest, np.abs(g)), summed + np.abs(g)
        reward, bet = np.maximum(reward - g * (theta - start), 0), bet - g
        theta = start + bet / (largest * np.maximum(summed + largest, alpha * largest)) * (largest + reward)
    return theta


CASES = {
    "default": (COCOB(), cocob),
    "other": (
        COCOB(0.5, alpha=10.0, eps=1e-3, weight_decay=0.1),
        partial(cocob, lr=0.5, alpha=10.0, eps=1e-3, decay=0.1),
    ),
}


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_follows_the_equations(rule, reference, assert_follows):
    assert_follows(rule, reference, [(6, 4), (5,), (2, 3, 4)])


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_the_scale_of_the_gradient_does_not_matter(factor, train, xp, draws):
    start, grads = draws(25, smallest=1e-2)
    param, _ = train(COCOB(), xp, start, lambda _, i: grads[i], 25)
    scaled, _ = train(COCOB(), xp, start, lambda _, i: factor * grads[i], 25)
    np.testing.assert_allclose(scaled, param, rtol=1e-9)


def test_impossible_settings_are_refused():
    with pytest.raises(ConfigurationError, match="eps"):
        COCOB(eps=0.0)
