"""Rules whose steps have one size, or Adam's sizes with other signs, against the equations of their papers."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import Grams, Lion, SignSGD, Tiger


def lion(theta, grads, *, lr, b1, b2, decay):
    m = np.zeros_like(theta)
    for g in grads:
        theta = theta * (1 - lr * decay) - lr * np.sign(b1 * m + (1 - b1) * g)
        m = b2 * m + (1 - b2) * g
    return theta


def signum(theta, grads, *, lr, beta, decay):
    m = np.zeros_like(theta)
    for g in grads:
        m = beta * m + (1 - beta) * g
        theta = theta * (1 - lr * decay) - lr * np.sign(m)
    return theta


def grams(theta, grads, *, lr, b1, b2, eps, decay):
    m = v = np.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        theta = theta * (1 - lr * decay)
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        theta = theta - lr * np.abs(m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps)) * np.sign(g)
    return theta


CASES = {
    "lion": (Lion(), partial(lion, lr=1e-4, b1=0.9, b2=0.99, decay=0.0)),
    "lion, other": (
        Lion(0.01, beta1=0.5, beta2=0.8, weight_decay=0.1),
        partial(lion, lr=0.01, b1=0.5, b2=0.8, decay=0.1),
    ),
    "signum": (SignSGD(), partial(signum, lr=1e-3, beta=0.9, decay=0.0)),
    "signum, other": (SignSGD(0.01, momentum=0.6, weight_decay=0.1), partial(signum, lr=0.01, beta=0.6, decay=0.1)),
    "signsgd": (SignSGD(0.01, momentum=0.0), partial(signum, lr=0.01, beta=0.0, decay=0.0)),
    "tiger": (Tiger(0.01), partial(signum, lr=0.01, beta=0.965, decay=0.01)),
    "grams": (Grams(), partial(grams, lr=1e-3, b1=0.9, b2=0.999, eps=1e-6, decay=0.0)),
    "grams, other": (
        Grams(0.02, beta1=0.6, beta2=0.95, eps=1e-4, weight_decay=0.1),
        partial(grams, lr=0.02, b1=0.6, b2=0.95, eps=1e-4, decay=0.1),
    ),
}


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_follows_the_equations(rule, reference, assert_follows):
    assert_follows(rule, reference)


@pytest.mark.parametrize("rule", [Lion(0.01), SignSGD(0.01), Tiger(0.01, weight_decay=0.0)])
def test_every_step_has_the_length_of_the_rate(rule, train, xp, draws):
    start, grads = draws(1)
    param, _ = train(rule, xp, start, lambda _, i: grads[i], 1)
    np.testing.assert_allclose(start - param, 0.01 * np.sign(grads[0]), atol=1e-15)


def test_without_momentum_there_is_no_state():
    assert SignSGD(momentum=0.0).init(np.zeros(2)) == {}
    assert SignSGD(momentum=0.0).hyperparameters() == {}


def test_a_momentum_of_one_is_refused():
    with pytest.raises(ConfigurationError, match="momentum"):
        SignSGD(momentum=1.0)
