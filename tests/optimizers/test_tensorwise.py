"""Rules that look at the whole tensor, and small ones that have no other place, against their equations."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import SM3, FAdam


def sm3(theta, grads, *, lr, momentum=0.0, beta=0.0, eps=1e-30, decay=0.0):
    covers = [np.zeros(size) for size in theta.shape]
    m = np.zeros_like(theta)
    for g in grads:
        g = g + decay * theta
        v = np.empty_like(theta)
        for index in np.ndindex(*theta.shape):
            least = min(cover[place] for cover, place in zip(covers, index, strict=True))
            v[index] = beta * least + (1 - beta) * g[index] ** 2 if beta else least + g[index] ** 2
        for axis, cover in enumerate(covers):
            for place in range(theta.shape[axis]):
                largest = v.take(place, axis).max()
                cover[place] = max(cover[place], largest) if beta else largest
        m = momentum * m + (1 - momentum) * g / np.sqrt(v + eps)
        theta = theta - lr * m
    return theta


def fadam(theta, grads, *, lr=1e-3, b1=0.9, b2=0.999, decay=0.1, clip=1.0, p=0.5, eps=1e-8, eps2=0.01):
    def rms(x):
        return np.sqrt(np.mean(x * x))

    fisher = m = np.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        b = (b2**t - b2) / (b2**t - 1)
        fisher = b * fisher + (1 - b) * g * g
        base = fisher**p + min(eps, eps2 * rms(g)) ** (2 * p)
        u, w = g / base, theta / base
        m = b1 * m + (1 - b1) * u / max(1.0, rms(u) / clip)
        theta = theta - lr * (m + decay * w / max(1.0, rms(w) / clip))
    return theta


CASES = {
    "sm3": (SM3(), partial(sm3, lr=0.1)),
    "sm3, other": (
        SM3(0.01, 0.9, 0.8, 1e-6, weight_decay=0.1),
        partial(sm3, lr=0.01, momentum=0.9, beta=0.8, eps=1e-6, decay=0.1),
    ),
    "fadam": (FAdam(), fadam),
    "fadam, other": (
        FAdam(0.01, 0.6, 0.9, 0.02, clip=0.5, p=0.4, eps=1e-3, eps2=1e-4),
        partial(fadam, lr=0.01, b1=0.6, b2=0.9, decay=0.02, clip=0.5, p=0.4, eps=1e-3, eps2=1e-4),
    ),
}


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_follows_the_equations(rule, reference, assert_follows):
    assert_follows(rule, reference, [(6, 4), (5,)])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SM3(momentum=1.0), "momentum"),
        (lambda: SM3(beta=1.0), "beta"),
        (lambda: FAdam(clip=0.0), "clip"),
        (lambda: FAdam(p=0.0), "p must"),
        (lambda: FAdam(eps=0.0), "eps"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
