"""Rules that bear spikes of the gradient, against their equations."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import SPAM, Adam, StableSPAM


def spam(theta, grads, *, lr, b1=0.9, b2=0.999, eps=1e-6, threshold=5000.0, settle=20, every=500, warmup=50, decay=0.0):
    m = v = np.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        since = t % every
        if since == 0:
            m = v = np.zeros_like(theta)
        if threshold and since >= settle:
            g = np.where(g**2 > threshold * v, np.sign(g) * np.sqrt(threshold * v), g)
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        death = 0.99 * (1 + np.cos(np.pi * (since + 1) / (warmup + 1))) / 2 if t >= every and since < warmup else 0.0
        theta = theta - (1 - death) * lr * np.sqrt(1 - b2**t) / (1 - b1**t) * m / (np.sqrt(v) + eps)
        theta = theta * (1 - lr * decay)
    return theta


def stable_spam(theta, grads, *, lr, b1=0.9, b2=0.999, eps=1e-8, g1=0.7, g2=0.9, mix=0.999, every=1000, decay=0.0):
    m = v = np.zeros_like(theta)
    largest = a = b = k = 0
    for t, g in enumerate(grads, 1):
        k += 1
        if t % every == 0:
            m, v, k = np.zeros_like(theta), np.zeros_like(theta), 1
        theta = theta * (1 - lr * decay)
        peak = np.abs(g).max()
        largest = mix * largest + (1 - mix) * peak
        most = largest / (1 - mix**t)
        if peak > 0:
            g = np.where(np.abs(g) > most, g / peak * most, g)
            size = np.linalg.norm(g)
            a, b = g1 * a + (1 - g1) * size, g2 * b + (1 - g2) * size**2
            g = g / size * (a / (1 - g1**t)) / (np.sqrt(b / (1 - g2**t)) + eps)
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
            theta = theta - lr / (1 - b1**k) * m / (np.sqrt(v / (1 - b2**k)) + eps)
    return theta


CASES = {
    "spam": (SPAM(0.01), partial(spam, lr=0.01)),
    "spam, often": (
        SPAM(
            0.01,
            beta1=0.7,
            beta2=0.9,
            eps=1e-3,
            threshold=2.0,
            settle=3,
            update_proj_gap=7,
            warmup_steps=4,
            weight_decay=0.1,
        ),
        partial(spam, lr=0.01, b1=0.7, b2=0.9, eps=1e-3, threshold=2.0, settle=3, every=7, warmup=4, decay=0.1),
    ),
    "spam without clipping": (
        SPAM(0.01, threshold=0.0, settle=0, update_proj_gap=9, warmup_steps=20),
        partial(spam, lr=0.01, threshold=0.0, every=9, warmup=20),
    ),
    "stable": (StableSPAM(0.01), partial(stable_spam, lr=0.01)),
    "stable, often": (
        StableSPAM(
            0.01, beta1=0.7, beta2=0.9, eps=1e-3, gamma1=0.6, gamma2=0.8, theta=0.5, update_proj_gap=7, weight_decay=0.1
        ),
        partial(stable_spam, lr=0.01, b1=0.7, b2=0.9, eps=1e-3, g1=0.6, g2=0.8, mix=0.5, every=7, decay=0.1),
    ),
}


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_follows_the_equations(rule, reference, assert_follows):
    # Which elements are clipped hangs on rounding where they are as large as the bound.
    assert_follows(rule, reference, [(6, 4), (5,), (2, 3, 4)], float32=1e-4)


def test_without_spikes_and_restarts_spam_is_adam(train, xp, draws):
    start, grads = draws(19, (6,))
    param, _ = train(SPAM(0.01), xp, start, lambda _, i: grads[i], 19)
    expected, _ = train(Adam(0.01, eps=1e-6, eps_hat=True), xp, start, lambda _, i: grads[i], 19)
    np.testing.assert_allclose(param, expected, rtol=1e-12)


def test_a_spike_does_little(train, xp):
    rng = np.random.default_rng(1)
    grads = rng.normal(size=(40, 8))
    spiky = grads.copy()
    spiky[20, 3] *= 1e4
    shifts = []
    for rule in (SPAM(0.01, threshold=4.0, settle=5), Adam(0.01)):
        calm, spiked = (train(rule, xp, np.zeros(8), lambda _, i, g=g: g[i], 40)[0] for g in (grads, spiky))
        shifts.append(np.abs(spiked - calm).max())
    assert shifts[0] < 0.5 * shifts[1]


def test_a_zero_gradient_leaves_what_stable_spam_knows(train, xp, draws):
    start, grads = draws(6, (5,))
    rule = StableSPAM(0.01)
    before, state = train(rule, xp, start, lambda _, i: grads[i], 5)
    after, later = train(rule, xp, start, lambda _, i: grads[i] if i < 5 else 0 * start, 6)
    np.testing.assert_array_equal(after, before)
    for slot in state.keys() - {"max_abs_grad"}:
        np.testing.assert_array_equal(later[slot], state[slot], err_msg=slot)


def test_momentum_starts_anew_where_the_gradient_is_zero(train, xp, draws):
    start, grads = draws(12, (5,), smallest=0.1)
    grads[6] = 0.0  # the seventh update, at which momentum starts anew
    param, _ = train(StableSPAM(0.01, update_proj_gap=7), xp, start, lambda _, i: grads[i], 12)
    np.testing.assert_allclose(param, stable_spam(start, grads, lr=0.01, every=7), rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SPAM(threshold=-1.0), "threshold"),
        (lambda: SPAM(settle=-1), "settle"),
        (lambda: SPAM(update_proj_gap=0), "update_proj_gap"),
        (lambda: SPAM(warmup_steps=-1), "warmup"),
        (lambda: StableSPAM(gamma1=1.0), "gamma1"),
        (lambda: StableSPAM(theta=1.0), "theta"),
        (lambda: StableSPAM(update_proj_gap=0), "update_proj_gap"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
