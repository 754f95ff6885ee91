"""Rules that are given an estimate of curvature, against the equations of their papers and reference packages."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import AdaHessian, SophiaG, SophiaH


def sophia(theta, grads, *, curvature, lr, b1, b2, decay, every, clipped):
    m = h = np.zeros_like(theta)
    for t, (g, estimate) in enumerate(zip(grads, curvature, strict=True)):
        m = b1 * m + (1 - b1) * g
        if t % every == 0:
            h = b2 * h + (1 - b2) * estimate
        theta = theta * (1 - lr * decay) - lr * clipped(m, h)
    return theta


def gauss_newton(m, h, *, rho):
    return np.sign(m) * np.minimum(np.abs(m) / (rho * h + 1e-15), 1.0)


def hutchinson(m, h, *, p, eps):
    return np.clip(m / np.maximum(h, eps), -p, p)


def adahessian(theta, grads, *, curvature, lr, b1, b2, eps, power, decay, every=1, spatial=False):
    m = v = np.zeros_like(theta)
    for t, (g, d) in enumerate(zip(grads, curvature, strict=True), 1):
        m = b1 * m + (1 - b1) * g
        if spatial and theta.ndim > 2:
            d = np.broadcast_to(np.abs(d).mean(tuple(range(2, theta.ndim)), keepdims=True), d.shape)
        if (t - 1) % every == 0:
            v = b2 * v + (1 - b2) * d**2
        theta = theta * (1 - lr * decay)
        theta = theta - lr / (1 - b1**t) * m / ((v / (1 - b2**t)) ** (power / 2) + eps)
    return theta


CASES = {
    "sophia_g": (
        SophiaG(0.01),
        partial(sophia, lr=0.01, b1=0.965, b2=0.99, decay=0.1, every=10, clipped=partial(gauss_newton, rho=0.04)),
    ),
    "sophia_g, other": (
        SophiaG(0.02, beta1=0.6, beta2=0.9, rho=5.0, weight_decay=0.0, every=3),
        partial(sophia, lr=0.02, b1=0.6, b2=0.9, decay=0.0, every=3, clipped=partial(gauss_newton, rho=5.0)),
    ),
    "sophia_h": (
        SophiaH(),
        partial(sophia, lr=0.06, b1=0.96, b2=0.99, decay=0.0, every=10, clipped=partial(hutchinson, p=0.01, eps=1e-12)),
    ),
    "sophia_h, other": (
        SophiaH(0.02, beta1=0.6, beta2=0.9, p=2.0, eps=1e-3, weight_decay=0.1, every=1),
        partial(sophia, lr=0.02, b1=0.6, b2=0.9, decay=0.1, every=1, clipped=partial(hutchinson, p=2.0, eps=1e-3)),
    ),
    "adahessian": (
        AdaHessian(0.01, eps=1e-4),
        partial(adahessian, lr=0.01, b1=0.9, b2=0.999, eps=1e-4, power=1.0, decay=0.0),
    ),
    "adahessian, other": (
        AdaHessian(
            0.02, beta1=0.6, beta2=0.9, eps=1e-2, hessian_power=0.5, weight_decay=0.1, every=2, spatial_average=True
        ),
        partial(adahessian, lr=0.02, b1=0.6, b2=0.9, eps=1e-2, power=0.5, decay=0.1, every=2, spatial=True),
    ),
}


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_follows_the_equations(rule, reference, assert_follows):
    assert_follows(rule, reference, [(6, 4), (4, 2, 3)])


def test_sophia_with_the_newton_step_where_the_curvature_is_known(train, xp):
    """On a quadratic, with nothing clipped, a learning rate of 1 leads to the minimum at once."""
    scales = np.array([1.0, 10.0, 100.0])
    rule = SophiaH(1.0, beta1=0.0, beta2=0.0, p=1e3, every=1)
    param, _ = train(rule, xp, np.ones(3), lambda p, _: xp.asarray(scales) * p, 1, curvature=lambda _: scales)
    np.testing.assert_allclose(param, 0.0, atol=1e-15)


@pytest.mark.parametrize("cls", [SophiaG, SophiaH, AdaHessian])
def test_a_period_is_at_least_one(cls):
    with pytest.raises(ConfigurationError, match="every"):
        cls(every=0)
