"""Rules that look at the whole tensor, and small ones that have no other place, against their equations."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import PID, SM3, SWATS, AdaMaxPlus, AMacP, EVAVariance, FAdam, SGDSaI


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


def pid(theta, grads, *, lr=1e-3, momentum=0.0, damp=0.0, integral=5.0, derivative=10.0, decay=0.0):
    i, d, last = 0.0, 0.0, None
    for g in grads:
        g = g + decay * theta
        i, d = momentum * i + (1 - damp) * g, momentum * d
        if last is not None:
            d = d + (1 - momentum) * (g - last)
        theta, last = theta - lr * (g + integral * i + derivative * d), g
    return theta


def adamax_plus(theta, grads, *, lr=2e-3, b1=0.9, b2=0.999, eps=1e-8, bound=10.0, scalar=False, decay=0.0):
    m, u = np.zeros_like(theta), 0.0
    for t, g in enumerate(grads, 1):
        g = g + decay * theta
        m, size = b1 * m + (1 - b1) * g, np.abs(g).max() if scalar else np.abs(g)
        u = np.maximum(b2 * u, np.minimum(size, bound) + eps)
        theta = theta - lr * m / (1 - b1**t) / u
    return theta


def adam_steps(grads, b1, b2, eps):
    m = v = np.zeros_like(grads[0])
    for t, g in enumerate(grads, 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        yield m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps)


def eva(theta, grads, *, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, sensitivity=1.0, least=0.1, most=2.0):
    for g, step in zip(grads, adam_steps(grads, b1, b2, eps), strict=True):
        factor = np.clip(1 / (1 + sensitivity * np.sqrt(g.var() + eps)), least, most)
        theta = theta - lr * factor * step
    return theta


def amacp(theta, grads, *, lr=1e-3, b1=0.9, b2=0.999, b3=0.9, eps=1e-8, low=0.01, high=0.1):
    factor, last = 1.0, None
    for step in adam_steps(grads, b1, b2, eps):
        choice = 1.0
        if last is not None:
            ratio = np.linalg.norm(theta - last) / np.linalg.norm(theta)
            choice = 0.5 if ratio > high else 1.5 if ratio < low else 1.0
        factor = b3 * factor + (1 - b3) * choice
        theta, last = theta - lr * factor * step, theta
    return theta


def swats(theta, grads, *, lr, b1=0.9, b2=0.999, eps=1e-6, tolerance=1e-6, nesterov=False, decay=0.0):
    m = v = b = np.zeros_like(theta)
    average, rate, switch = 0.0, None, None
    for t, g in enumerate(grads, 1):
        g = g + decay * theta
        if rate is not None:
            b = b1 * b + g
            theta = theta - rate * ((1 - b1) * b + (b1 * b if nesterov else 0.0))
            continue
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        step = lr * np.sqrt(1 - b2**t) / (1 - b1**t) * m / (np.sqrt(v) + eps)
        theta = theta - step
        guess = np.sum(step * step) / np.sum(step * g)
        average = b2 * average + (1 - b2) * guess
        estimate = average / (1 - b2**t)
        if t > 1 and estimate > 0 and abs(estimate - guess) <= tolerance * abs(guess):
            rate, switch = estimate, t
    assert tolerance < 0.1 or (switch is not None and switch < 25)
    return theta


def sgd_sai(theta, grads, *, lr=0.01, momentum=0.9, eps=1e-8, decay=0.01):
    scaling = np.linalg.norm(grads[0]) / (grads[0].std(ddof=1) + eps) if theta.ndim > 1 else 1.0
    m = np.zeros_like(theta)
    for g in grads:
        m = momentum * m + (1 - momentum) * g
        theta = theta * (1 - lr * decay) - lr * scaling * m
    return theta


CASES = {
    "sgd_sai": (SGDSaI(), sgd_sai),
    "sgd_sai, other": (
        SGDSaI(1e-3, momentum=0.0, eps=0.1, weight_decay=0.1),
        partial(sgd_sai, lr=1e-3, momentum=0.0, eps=0.1, decay=0.1),
    ),
    "swats": (SWATS(1e-3), partial(swats, lr=1e-3)),
    "swats, other": (
        SWATS(0.01, beta1=0.6, beta2=0.9, eps=1e-3, tolerance=0.5, weight_decay=0.1),
        partial(swats, lr=0.01, b1=0.6, b2=0.9, eps=1e-3, tolerance=0.5, decay=0.1),
    ),
    "swats, nesterov": (
        SWATS(0.01, beta1=0.6, beta2=0.9, eps=1e-3, tolerance=0.95, nesterov=True),
        partial(swats, lr=0.01, b1=0.6, b2=0.9, eps=1e-3, tolerance=0.95, nesterov=True),
    ),
    "adamax_plus": (AdaMaxPlus(), adamax_plus),
    "adamax_plus, other": (
        AdaMaxPlus(0.01, beta1=0.6, beta2=0.9, eps=1e-4, clip_inf=0.5, scalar_norm=True, weight_decay=0.1),
        partial(adamax_plus, lr=0.01, b1=0.6, b2=0.9, eps=1e-4, bound=0.5, scalar=True, decay=0.1),
    ),
    "eva_variance": (EVAVariance(), eva),
    "eva_variance, other": (
        EVAVariance(0.01, beta1=0.6, beta2=0.9, eps=1e-4, sensitivity=3.0, least=0.01, most=0.5),
        partial(eva, lr=0.01, b1=0.6, b2=0.9, eps=1e-4, sensitivity=3.0, least=0.01, most=0.5),
    ),
    "amacp": (AMacP(), amacp),
    "amacp, other": (
        AMacP(0.02, beta1=0.6, beta2=0.9, eps=1e-4, beta3=0.5, low=0.008, high=0.012),
        partial(amacp, lr=0.02, b1=0.6, b2=0.9, b3=0.5, eps=1e-4, low=0.008, high=0.012),
    ),
    "pid": (PID(), pid),
    "pid, other": (
        PID(1e-3, momentum=0.6, dampening=0.3, integral=2.0, derivative=4.0, weight_decay=0.1),
        partial(pid, momentum=0.6, damp=0.3, integral=2.0, derivative=4.0, decay=0.1),
    ),
    "sm3": (SM3(), partial(sm3, lr=0.1)),
    "sm3, other": (
        SM3(0.01, momentum=0.9, beta=0.8, eps=1e-6, weight_decay=0.1),
        partial(sm3, lr=0.01, momentum=0.9, beta=0.8, eps=1e-6, decay=0.1),
    ),
    "fadam": (FAdam(), fadam),
    "fadam, other": (
        FAdam(0.01, beta1=0.6, beta2=0.9, weight_decay=0.02, clip=0.5, p=0.4, eps=1e-3, eps2=1e-4),
        partial(fadam, lr=0.01, b1=0.6, b2=0.9, decay=0.02, clip=0.5, p=0.4, eps=1e-3, eps2=1e-4),
    ),
}


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_follows_the_equations(rule, reference, assert_follows):
    assert_follows(rule, reference, [(6, 4), (5,)])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EVAVariance(least=3.0), "least"),
        (lambda: AMacP(low=0.2), "low"),
        (lambda: SGDSaI(momentum=1.0), "momentum"),
        (lambda: PID(momentum=1.0), "momentum"),
        (lambda: PID(dampening=1.5), "dampening"),
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


def test_amacp_views_the_mean_of_the_last_two(xp, train, draws):
    start, grads = draws(5)
    rule = AMacP(0.01)
    before, after = (train(rule, xp, start, lambda _, i: grads[i], steps) for steps in (4, 5))
    view = rule.view(xp, xp.asarray(after[0]), {k: xp.asarray(v) for k, v in after[1].items()}, {}, None)
    np.testing.assert_allclose(np.asarray(view), (before[0] + after[0]) / 2, rtol=1e-14)
