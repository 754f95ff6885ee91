"""AdamP and SGDP, against the equations of the paper, and other rules with norms of the whole gradient."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import SGDP, AdamP, AdaNorm, PAdam

norm = np.linalg.norm


def projected(theta, g, p, *, eps, delta, wd_ratio):
    for flat in ((theta.shape[0], -1), (1, -1)):
        rows, slopes, steps = theta.reshape(flat), g.reshape(flat), p.reshape(flat)
        cosines = [abs(x @ y) / (norm(x) + eps) / (norm(y) + eps) for x, y in zip(slopes, rows, strict=True)]
        if max(cosines) < delta / np.sqrt(rows.shape[1]):
            units = [x / (norm(x) + eps) for x in rows]
            steps = [step - (unit @ step) * unit for step, unit in zip(steps, units, strict=True)]
            return np.reshape(steps, theta.shape), wd_ratio
    return p, 1.0


def adamp(theta, grads, *, lr, b1, b2, eps, decay, delta, wd_ratio, nesterov=False):
    m = v = np.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        p = (b1 * m + (1 - b1) * g if nesterov else m) / (np.sqrt(v / (1 - b2**t)) + eps)
        ratio = 1.0
        if theta.ndim > 1:
            p, ratio = projected(theta, g, p, eps=eps, delta=delta, wd_ratio=wd_ratio)
        theta = theta * (1 - lr * decay * ratio) - lr / (1 - b1**t) * p
    return theta


def sgdp(theta, grads, *, lr, momentum, dampening, eps, decay, delta, wd_ratio, nesterov=False):
    b = np.zeros_like(theta)
    for g in grads:
        b = momentum * b + (1 - dampening) * g
        p, ratio = g + momentum * b if nesterov else b, 1.0
        if theta.ndim > 1:
            p, ratio = projected(theta, g, p, eps=eps, delta=delta, wd_ratio=wd_ratio)
        theta = theta * (1 - lr * decay * ratio / (1 - momentum)) - lr * p
    return theta


def padam(theta, grads, *, lr, b1, b2, eps, partial, decay):
    m = v = np.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        g = g + decay * theta
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        theta = theta - lr * np.sqrt(1 - b2**t) / (1 - b1**t) * m / (np.sqrt(v) + eps) ** (2 * partial)
    return theta


def adanorm(theta, grads, *, lr, b1, b2, eps, r, decay):
    m = v = np.zeros_like(theta)
    average = 0.0
    for t, g in enumerate(grads, 1):
        theta = theta * (1 - lr * decay)
        average = r * average + (1 - r) * norm(g)
        m = b1 * m + (1 - b1) * g * max(1.0, average / norm(g))
        v = b2 * v + (1 - b2) * g**2
        theta = theta - lr * m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps)
    return theta


OTHER = {"lr": 0.02, "b1": 0.6, "b2": 0.95, "eps": 1e-4}
other: dict[str, Any] = {"lr": 0.02, "beta1": 0.6, "beta2": 0.95, "eps": 1e-4}
CASES = {
    "adamp": (
        AdamP(0.01),
        partial(adamp, lr=0.01, b1=0.9, b2=0.999, eps=1e-8, decay=0.0, delta=0.1, wd_ratio=0.1),
    ),
    "adamp, other": (
        AdamP(**other, delta=0.9, wd_ratio=0.3, weight_decay=0.1, nesterov=True),
        partial(adamp, **OTHER, decay=0.1, delta=0.9, wd_ratio=0.3, nesterov=True),
    ),
    "sgdp": (
        SGDP(0.01, momentum=0.9, dampening=0.1, weight_decay=0.1),
        partial(sgdp, lr=0.01, momentum=0.9, dampening=0.1, eps=1e-8, decay=0.1, delta=0.1, wd_ratio=0.1),
    ),
    "sgdp, nesterov": (
        SGDP(0.01, momentum=0.5, delta=0.9, weight_decay=0.1, nesterov=True),
        partial(
            sgdp, lr=0.01, momentum=0.5, dampening=0.0, eps=1e-8, decay=0.1, delta=0.9, wd_ratio=0.1, nesterov=True
        ),
    ),
    "padam": (PAdam(0.01), partial(padam, lr=0.01, b1=0.9, b2=0.999, eps=1e-8, partial=0.25, decay=0.0)),
    "padam, other": (
        PAdam(**other, partial=0.4, weight_decay=0.1),
        partial(padam, **OTHER, partial=0.4, decay=0.1),
    ),
    "adanorm": (AdaNorm(0.01), partial(adanorm, lr=0.01, b1=0.9, b2=0.99, eps=1e-8, r=0.95, decay=0.0)),
    "adanorm, other": (AdaNorm(**other, r=0.5, weight_decay=0.1), partial(adanorm, **OTHER, r=0.5, decay=0.1)),
}


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_follows_the_equations(rule, reference, assert_follows):
    assert_follows(rule, reference, [(6, 4), (5,), (2, 3, 4)])


def test_a_gradient_along_the_weights_keeps_its_direction(train, xp):
    start = np.array([[3.0, 4.0], [1.0, 0.0]])
    param, _ = train(SGDP(0.1), xp, start, lambda p, _: p, 1)
    np.testing.assert_allclose(param, 0.9 * start, rtol=1e-15)


def test_a_gradient_across_the_weights_keeps_their_length_to_first_order(train, xp):
    start, across = np.array([[3.0, 4.0], [1.0, 0.0]]), np.array([[-4.0, 3.0], [0.0, 1.0]])
    param, _ = train(SGDP(0.1, momentum=0.9), xp, start, lambda _, i: across + i * start, 2)
    np.testing.assert_allclose(param, start - 0.29 * across - 0.1 * start, rtol=1e-12)
    param, _ = train(SGDP(0.1, momentum=0.9, weight_decay=0.5), xp, start, lambda _, i: across, 1)
    np.testing.assert_allclose(param, start * (1 - 0.1 * 0.5 * 0.1 / 0.1) - 0.1 * across, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGDP(momentum=1.0), "momentum"),
        (lambda: SGDP(momentum=0.9, dampening=0.1, nesterov=True), "nesterov"),
        (lambda: AdaNorm(r=1.0), "r must"),
        (lambda: AdamP(wd_ratio=-1.0), "wd_ratio"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
