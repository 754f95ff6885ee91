"""Schedule-free rules against their equations with x, y and z written out, in training and in evaluation."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import ScheduleFreeAdamW, ScheduleFreeRAdam, ScheduleFreeSGD


def averages(theta, grads, *, direction, lr, b1, decay=0.0, warmup=0, r=0.0, power=2.0):
    """The points x, y, z of the paper, after the last step; `direction` gives a factor of the rate as well."""
    x, y, z, largest, total = theta, theta, theta, 0.0, 0.0
    for t, g in enumerate(grads, 1):
        factor, u = direction(t, g)
        rate = lr * factor * min(1.0, t / warmup if warmup else 1.0)
        largest = max(largest, rate)
        weight = t**r * largest**power
        total += weight
        c = weight / total if total else 0.0
        z = z - rate * (u + decay * y)
        x = (1 - c) * x + c * z
        y = b1 * x + (1 - b1) * z
    return x, y


class Normalised:
    """The directions of AdamW and RAdam, with the second moment that they keep."""

    def __init__(self, b2, eps, rectified=False, silent=True):
        self.v, self.b2, self.eps, self.rectified, self.silent = 0.0, b2, eps, rectified, silent

    def __call__(self, t, g):
        self.v = self.b2 * self.v + (1 - self.b2) * g**2
        scaled = g / (np.sqrt(self.v / (1 - self.b2**t)) + self.eps)
        if not self.rectified:
            return 1.0, scaled
        longest = 2 / (1 - self.b2) - 1
        n = longest - 2 * t * self.b2**t / (1 - self.b2**t)
        if n <= 4:
            return float(not self.silent), g
        return np.sqrt((n - 4) / (longest - 4) * (n - 2) / (longest - 2) * longest / n), scaled


def sgd(theta, grads, **settings):
    return averages(theta, grads, direction=lambda _, g: (1.0, g), **settings)


def adamw(theta, grads, *, b2, eps, **settings):
    return averages(theta, grads, direction=Normalised(b2, eps), **settings)


def radam(theta, grads, *, b2, eps, silent=True, **settings):
    return averages(theta, grads, direction=Normalised(b2, eps, rectified=True, silent=silent), **settings)


CASES = {
    "sgd": (ScheduleFreeSGD(lr=0.01), partial(sgd, lr=0.01, b1=0.9)),
    "sgd, other": (
        ScheduleFreeSGD(lr=0.02, beta1=0.6, weight_decay=0.1, warmup_steps=7.0, r=1.0, weight_lr_power=1.0),
        partial(sgd, lr=0.02, b1=0.6, decay=0.1, warmup=7, r=1.0, power=1.0),
    ),
    "adamw": (ScheduleFreeAdamW(), partial(adamw, lr=2.5e-3, b1=0.9, b2=0.999, eps=1e-8)),
    "adamw, other": (
        ScheduleFreeAdamW(lr=0.01, beta1=0.95, beta2=0.9, eps=1e-4, weight_decay=0.1, warmup_steps=12.0),
        partial(adamw, lr=0.01, b1=0.95, b2=0.9, eps=1e-4, decay=0.1, warmup=12),
    ),
    "radam": (ScheduleFreeRAdam(), partial(radam, lr=2.5e-3, b1=0.9, b2=0.999, eps=1e-8)),
    "radam, other": (
        ScheduleFreeRAdam(lr=0.01, beta1=0.7, beta2=0.99, eps=1e-4, weight_decay=0.1, r=2.0, silent_sgd_phase=False),
        partial(radam, lr=0.01, b1=0.7, b2=0.99, eps=1e-4, decay=0.1, r=2.0, silent=False),
    ),
}


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_follows_the_equations_where_gradients_are_taken(rule, reference, assert_follows):
    assert_follows(rule, lambda theta, grads: reference(theta, grads)[1])


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_views_the_average(rule, reference, train, xp, draws):
    for steps in (0, 1, 25):
        start, grads = draws(max(steps, 1))
        param, state = train(rule, xp, start, lambda _, i, grads=grads: grads[i], steps)
        hyper = {name: xp.asarray(value, dtype=xp.float64) for name, value in rule.hyperparameters().items()}
        slots = {slot: xp.asarray(value) for slot, value in state.items()}
        view = np.asarray(rule.view(xp, xp.asarray(param), slots, hyper, xp.asarray(steps)))
        expected = reference(start, grads[:steps])[0]
        np.testing.assert_allclose(view, expected, rtol=1e-12, atol=1e-12)


def test_without_beta1_the_average_could_not_be_recovered():
    with pytest.raises(ConfigurationError, match="beta1"):
        ScheduleFreeSGD(beta1=0.0)
