"""Rules with momentum and no division, against the equations of their papers."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import FISTA, QHM, SGDW, AccSGD, AggMo


def sgdw(theta, grads, *, lr, momentum, decay, nesterov=False):
    buffer = np.zeros_like(theta)
    for g in grads:
        buffer = momentum * buffer + g
        theta = (1 - lr * decay) * theta - lr * (g + momentum * buffer if nesterov else buffer)
    return theta


def qhm(theta, grads, *, lr, beta, nu, decay):
    average = np.zeros_like(theta)
    for g in grads:
        average = beta * average + (1 - beta) * g
        theta = (1 - lr * decay) * theta - lr * ((1 - nu) * g + nu * average)
    return theta


def aggmo(theta, grads, *, lr, betas, decay):
    buffers = [np.zeros_like(theta) for _ in betas]
    for g in grads:
        g = g + decay * theta
        buffers = [beta * buffer + g for beta, buffer in zip(betas, buffers, strict=True)]
        theta = theta - lr / len(betas) * sum(buffers)
    return theta


def acc_sgd(theta, grads, *, lr, kappa, xi, c, decay):
    alpha = 1 - xi * c**2 / kappa
    buffer, zeta = theta, c / (c + 1 - alpha)
    for g in grads:
        g = g + decay * theta
        buffer = alpha * buffer + (1 - alpha) * (theta - lr * kappa / c * g)
        theta = zeta * (theta - lr * g) + (1 - zeta) * buffer
    return theta


def fista(theta, grads, *, lr):
    before, t = theta, 1.0
    for g in grads:
        after, t_next = theta - lr * g, (1 + np.sqrt(1 + 4 * t**2)) / 2
        theta = after + (t - 1) / t_next * (after - before)
        before, t = after, t_next
    return theta


CASES = [
    (AccSGD(1e-4), partial(acc_sgd, lr=1e-4, kappa=1000.0, xi=10.0, c=0.7, decay=0.0)),
    (
        AccSGD(1e-3, kappa=50.0, xi=5.0, constant=0.4, weight_decay=0.1),
        partial(acc_sgd, lr=1e-3, kappa=50.0, xi=5.0, c=0.4, decay=0.1),
    ),
    (FISTA(1e-4), partial(fista, lr=1e-4)),
    (SGDW(0.01, momentum=0.9, weight_decay=0.1), partial(sgdw, lr=0.01, momentum=0.9, decay=0.1)),
    (
        SGDW(0.01, momentum=0.8, nesterov=True),
        partial(sgdw, lr=0.01, momentum=0.8, decay=0.01, nesterov=True),
    ),
    (QHM(0.01), partial(qhm, lr=0.01, beta=0.999, nu=0.7, decay=0.0)),
    (QHM(0.01, beta=0.9, nu=0.4, weight_decay=0.1), partial(qhm, lr=0.01, beta=0.9, nu=0.4, decay=0.1)),
    (AggMo(0.001), partial(aggmo, lr=0.001, betas=(0.0, 0.9, 0.99), decay=0.0)),
    (
        AggMo(0.001, betas=(0.5, 0.0, 0.0, 0.95), weight_decay=0.1),
        partial(aggmo, lr=0.001, betas=(0.5, 0.0, 0.0, 0.95), decay=0.1),
    ),
]


@pytest.mark.parametrize(("rule", "reference"), CASES)
def test_follows_the_equations(rule, reference, assert_follows):
    assert_follows(rule, reference)


def test_aggmo_keeps_no_buffer_for_a_beta_of_zero():
    assert list(AggMo(betas=(0.0, 0.9, 0.99)).init(np.zeros(2))) == ["momentum_buffer_1", "momentum_buffer_2"]
    assert AggMo(betas=(0.0,)).init(np.zeros(2)) == {}


@pytest.mark.parametrize("betas", [(), 0.9, (0.9, 1.0), (-0.1,)], ids=str)
def test_impossible_betas_are_refused(betas):
    with pytest.raises(ConfigurationError, match="betas"):
        AggMo(betas=betas)


@pytest.mark.parametrize("settings", [{"kappa": 0.0}, {"constant": 0.0}], ids=str)
def test_accelerated_sgd_needs_a_long_step(settings):
    (name,) = settings
    with pytest.raises(ConfigurationError, match=name):
        AccSGD(**settings)


def test_fista_is_faster_than_descent_at_its_rate(train, xp):
    curvatures = np.array([1.0, 1e-3])
    objective = [
        float(curvatures @ train(rule, xp, np.ones(2), lambda p, _: xp.asarray(curvatures) * p, 200)[0] ** 2)
        for rule in (FISTA(1.0), SGDW(1.0, weight_decay=0.0))
    ]
    assert objective[0] < 0.1 * objective[1]


def test_a_nu_above_one_is_refused():
    with pytest.raises(ConfigurationError, match="nu"):
        QHM(nu=1.1)
