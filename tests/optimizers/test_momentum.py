"""Rules with momentum and no division, against the equations of their papers."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import QHM, SGDW, AggMo


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


CASES = [
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
    assert AggMo(betas=(0.0, 0.9, 0.99)).slots() == ("momentum_buffer_1", "momentum_buffer_2")
    assert AggMo(betas=(0.0,)).slots() == ()


@pytest.mark.parametrize("betas", [(), [0.9], (0.9, 1.0), (-0.1,)], ids=str)
def test_impossible_betas_are_refused(betas):
    with pytest.raises(ConfigurationError, match="betas"):
        AggMo(betas=betas)


def test_a_nu_above_one_is_refused():
    with pytest.raises(ConfigurationError, match="nu"):
        QHM(nu=1.1)
