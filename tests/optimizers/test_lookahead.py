from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import SGD, Adam, Averaged, AveragedAdam, Lookahead, Mechanic, NAdam, Ranger
from edgeopt.schedules import WarmupLinear


def sgd_lookahead(theta, grads, *, lr, momentum, every, alpha):
    slow, buffer = theta, np.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        buffer = momentum * buffer + g
        theta = theta - lr * buffer
        if t % every == 0:
            theta = slow = slow + alpha * (theta - slow)
    return theta


def ranger(theta, grads, *, lr, b1, b2, eps, every, alpha, decay):
    slow, m, v = theta, np.zeros_like(theta), np.zeros_like(theta)
    longest = 2 / (1 - b2) - 1
    for t, g in enumerate(grads, 1):
        if g.ndim > 1:
            g = g - g.mean(axis=tuple(range(1, g.ndim)), keepdims=True)
        theta = theta * (1 - lr * decay)
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        n = longest - 2 * t * b2**t / (1 - b2**t)
        step = m / (1 - b1**t)
        if n > 5:
            r = np.sqrt((n - 4) / (longest - 4) * (n - 2) / (longest - 2) * longest / n)
            step = step * r * np.sqrt(1 - b2**t) / (np.sqrt(v) + eps)
        theta = theta - lr * step
        if t % every == 0:
            theta = slow = slow + alpha * (theta - slow)
    return theta


CASES = {
    "lookahead": (
        Lookahead(SGD(0.01, momentum=0.9)),
        partial(sgd_lookahead, lr=0.01, momentum=0.9, every=5, alpha=0.5),
    ),
    "lookahead, other": (
        Lookahead(SGD(0.01, momentum=0.5), k=3, alpha=0.8),
        partial(sgd_lookahead, lr=0.01, momentum=0.5, every=3, alpha=0.8),
    ),
    "ranger": (Ranger(), partial(ranger, lr=1e-3, b1=0.95, b2=0.999, eps=1e-5, every=6, alpha=0.5, decay=0.0)),
    "ranger, other": (
        Ranger(0.01, beta1=0.6, beta2=0.95, eps=1e-3, k=4, alpha=0.7, weight_decay=0.1),
        partial(ranger, lr=0.01, b1=0.6, b2=0.95, eps=1e-3, every=4, alpha=0.7, decay=0.1),
    ),
}


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_follows_the_equations(rule, reference, assert_follows):
    assert_follows(rule, reference, [(6, 4), (5,), (2, 3, 4)])


def test_the_inner_optimizer_keeps_its_own(xp, train, draws):
    schedule = WarmupLinear(0.1, 2, 20)
    inner = NAdam(schedule, beta1=0.8)
    outer = Lookahead(inner, alpha=0.25)
    assert outer.schedule is schedule
    assert list(outer.init(np.zeros(2))) == [*inner.init(np.zeros(2)), "slow_param"]
    assert outer.hyperparameters() == {**inner.hyperparameters(), "lookahead.alpha": 0.25}
    assert outer.elementwise
    assert not Lookahead(Adam(cautious=True)).elementwise
    start, grads = draws(4)
    ours, _ = train(outer, xp, start, lambda _, i: grads[i], 4)
    theirs, _ = train(inner, xp, start, lambda _, i: grads[i], 4)
    np.testing.assert_array_equal(ours, theirs)  # the first return is at step 5


@pytest.mark.parametrize(
    ("make", "slot"),
    [
        (lambda: Lookahead(Lookahead(SGD())), "slow_param"),
        (lambda: Lookahead(Averaged(Ranger())), "slow_param"),
        (lambda: Averaged(AveragedAdam()), "averaged_param"),
        (lambda: Mechanic(Lookahead(Mechanic(SGD()))), "mechanic_start"),
    ],
)
def test_no_two_wrappers_share_a_slot(make, slot):
    with pytest.raises(ConfigurationError, match=slot):
        make().init(np.zeros(2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Lookahead(0.1), "inner"),  # type: ignore[arg-type] # wrong on purpose
        (lambda: Lookahead(SGD(), k=0), "k must"),
        (lambda: Lookahead(SGD(), alpha=1.5), "alpha"),
        (lambda: Ranger(k=0), "k must"),
        (lambda: Ranger(alpha=1.5), "alpha"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
