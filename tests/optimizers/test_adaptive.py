"""Relatives of Adam that torch lacks, against the equations of their papers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import (
    ADOPT,
    MADGRAD,
    MARS,
    AdaBelief,
    AdaBound,
    Adam,
    AdaMod,
    Adan,
    AdEMAMix,
    AMSBound,
    DiffGrad,
    HNAdam,
    LaProp,
    NAdam,
    QHAdam,
    SimplifiedAdEMAMix,
    StableAdamW,
    Yogi,
)
from edgeopt.schedules import WarmupLinear


def adam_hat(theta, grads, *, lr, b1, b2, eps):
    m = v = np.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        theta = theta - lr * np.sqrt(1 - b2**t) / (1 - b1**t) * m / (np.sqrt(v) + eps)
    return theta


def nadam(theta, grads, *, lr, b1, b2, eps, decay, shift):
    m = v = np.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        g = g + decay * theta
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        m_hat = b1 * m / (1 - b1 ** (t + shift)) + (1 - b1) * g / (1 - b1**t)
        theta = theta - lr * m_hat / (np.sqrt(v / (1 - b2**t)) + eps)
    return theta


def adabelief(theta, grads, *, lr, b1, b2, eps, decay, amsgrad=False):
    m = s = top = np.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        theta = theta * (1 - lr * decay)
        m = b1 * m + (1 - b1) * g
        s = b2 * s + (1 - b2) * (g - m) ** 2 + eps
        top = np.maximum(top, s)
        root = np.sqrt((top if amsgrad else s) / (1 - b2**t))
        theta = theta - lr * m / (1 - b1**t) / (root + eps)
    return theta


def adabound(theta, grads, *, lr, b1, b2, eps, final, gamma, decay, amsbound=False):
    m = v = top = np.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        g = g + decay * theta
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        top = np.maximum(top, v)
        sizes = lr * np.sqrt(1 - b2**t) / (1 - b1**t) / (np.sqrt(top if amsbound else v) + eps)
        theta = theta - np.clip(sizes, final * (1 - 1 / (gamma * t + 1)), final * (1 + 1 / (gamma * t))) * m
    return theta


def adamod(theta, grads, *, lr, b1, b2, b3, eps, decay):
    m = v = average = np.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        theta = theta * (1 - lr * decay)
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        sizes = lr * np.sqrt(1 - b2**t) / (1 - b1**t) / (np.sqrt(v) + eps)
        average = b3 * average + (1 - b3) * sizes
        theta = theta - np.minimum(sizes, average) * m
    return theta


def diffgrad(theta, grads, *, lr, b1, b2, eps, decay):
    m = v = last = np.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        g = g + decay * theta
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        friction = 1 / (1 + np.exp(-np.abs(last - g)))
        theta = theta - lr * np.sqrt(1 - b2**t) / (1 - b1**t) * friction * m / (np.sqrt(v) + eps)
        last = g
    return theta


def yogi(theta, grads, *, lr, b1, b2, eps, first, decay):
    m = v = np.full_like(theta, first)
    for t, g in enumerate(grads, 1):
        theta = theta * (1 - lr * decay)
        m = b1 * m + (1 - b1) * g
        v = v - (1 - b2) * np.sign(v - g**2) * g**2
        theta = theta - lr * m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps)
    return theta


def qhadam(theta, grads, *, lr, b1, b2, nu1, nu2, eps, decay):
    m = v = np.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        theta = theta * (1 - lr * decay)
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        m_hat, v_hat = m / (1 - b1**t), v / (1 - b2**t)
        theta = theta - lr * ((1 - nu1) * g + nu1 * m_hat) / (np.sqrt((1 - nu2) * g**2 + nu2 * v_hat) + eps)
    return theta


def laprop(theta, grads, *, rates, b1, b2, eps, decay):
    m, average, v = np.zeros_like(theta), 0.0, np.zeros_like(theta)
    for t, (g, lr) in enumerate(zip(grads, rates, strict=False), 1):
        v = b2 * v + (1 - b2) * g**2
        m = b1 * m + (1 - b1) * lr * g / (np.sqrt(v / (1 - b2**t)) + eps)
        average = b1 * average + (1 - b1) * lr
        theta = theta - (m * lr / average if average else 0.0)
        theta = theta * (1 - lr * decay)
    return theta


def adopt(theta, grads, *, lr, b1, b2, eps, decay):
    m, v = np.zeros_like(theta), grads[0] ** 2
    theta = theta * (1 - lr * decay)
    for t, g in enumerate(grads[1:], 1):
        theta = theta * (1 - lr * decay)
        u = np.clip(g / np.maximum(np.sqrt(v), eps), -(t**0.25), t**0.25)
        m = b1 * m + (1 - b1) * u
        theta = theta - lr * m
        v = b2 * v + (1 - b2) * g**2
    return theta


def adan(theta, grads, *, lr, b1, b2, b3, eps, decay, proximal=True):
    m = w = n = np.zeros_like(theta)
    last = grads[0]
    for t, g in enumerate(grads, 1):
        d, last = g - last, g
        m, w = b1 * m + (1 - b1) * g, b2 * w + (1 - b2) * d
        n = b3 * n + (1 - b3) * (g + b2 * d) ** 2
        u = (m / (1 - b1**t) + b2 * w / (1 - b2**t)) / (np.sqrt(n / (1 - b3**t)) + eps)
        theta = (theta - lr * u) / (1 + lr * decay) if proximal else theta * (1 - lr * decay) - lr * u
    return theta


def ademamix(theta, grads, *, lr, b1, b2, b3, alpha, eps, decay, warmup=None):
    m = s = v = np.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        alpha_t, b3_t = alpha, b3
        if warmup and t < warmup:
            # Both are linear in the share: alpha, and the half-life ln(1/2)/ln(beta).
            share = t / warmup
            half_life = (1 - share) * np.log(0.5) / np.log(b1) + share * np.log(0.5) / np.log(b3)
            alpha_t, b3_t = share * alpha, 0.5 ** (1 / half_life)
        theta = theta * (1 - lr * decay)
        m, s = b1 * m + (1 - b1) * g, b3_t * s + (1 - b3_t) * g
        v = b2 * v + (1 - b2) * g**2
        theta = theta - lr * (m / (1 - b1**t) + alpha_t * s) / (np.sqrt(v / (1 - b2**t)) + eps)
    return theta


def simplified_ademamix(theta, grads, *, lr, b1, b2, alpha, eps, decay):
    m = v = np.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        theta = theta * (1 - lr * decay)
        m, v = b1 * m + g, b2 * v + (1 - b2) * g**2
        theta = theta - lr * (m + alpha * g) / (np.sqrt(v / (1 - b2**t)) + eps)
    return theta


def madgrad(theta, grads, *, lr, momentum, eps, decay):
    first, s, v = theta, np.zeros_like(theta), np.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        g = g + decay * theta
        weight = (lr + eps) * np.sqrt(t)
        s, v = s + weight * g, v + weight * g**2
        theta = momentum * theta + (1 - momentum) * (first - s / (np.cbrt(v) + eps))
    return theta


def stable_adamw(theta, grads, *, lr, b1, b2, eps, decay):
    m = v = np.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        h1, h2 = (b1**t - b1) / (b1**t - 1), (b2**t - b2) / (b2**t - 1)
        m, v = h1 * m + (1 - h1) * g, h2 * v + (1 - h2) * g**2
        rate = lr / max(1.0, np.sqrt(np.mean(g**2 / np.maximum(v, eps**2))))
        theta = theta * (1 - rate * decay) - rate * m / (np.sqrt(v) + eps)
    return theta


def mars(theta, grads, *, lr, b1, b2, b1_1d, b2_1d, eps, gamma, decay):
    matrix = theta.ndim == 2
    if not matrix:
        b1, b2 = b1_1d, b2_1d
    m = v = last = np.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        c = g
        if matrix:
            c = g + gamma * b1 / (1 - b1) * (g - last)
            c = c / max(1.0, np.linalg.norm(c))
        m, v, last = b1 * m + (1 - b1) * c, b2 * v + (1 - b2) * c**2, g
        theta = theta - lr * (m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps) + decay * theta)
    return theta


def hn_adam(theta, grads, *, lr, b1, b2, eps, norm, decay):
    m = v = top = np.zeros_like(theta)
    for g in grads:
        g = g + decay * theta
        largest = np.maximum(m, np.abs(g))
        n = norm - np.divide(m, largest, out=np.zeros_like(m), where=largest > 0)
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * np.abs(g) ** n
        top = np.where(n < 2, np.maximum(top, v), top)
        theta = theta - lr * m / (np.where(n < 2, top, v) ** (1 / n) + eps)
    return theta


ADAM = {"lr": 0.01, "b1": 0.9, "b2": 0.999, "eps": 1e-8}
OTHER = {"lr": 0.02, "b1": 0.6, "b2": 0.95, "eps": 1e-4}
other: dict[str, Any] = {"lr": 0.02, "beta1": 0.6, "beta2": 0.95, "eps": 1e-4}
CASES = {
    "adam with eps hat": (Adam(0.01, eps_hat=True), partial(adam_hat, **ADAM)),
    "nadam, simple": (
        NAdam(**other, variant="simple", weight_decay=0.1),
        partial(nadam, **OTHER, decay=0.1, shift=1),
    ),
    "nadam, single": (NAdam(0.01, variant="single"), partial(nadam, **ADAM, decay=0.0, shift=0)),
    "adabelief": (AdaBelief(0.01), partial(adabelief, **{**ADAM, "eps": 1e-16}, decay=0.0)),
    "adabelief, other": (
        AdaBelief(**other, weight_decay=0.1, amsgrad=True),
        partial(adabelief, **OTHER, decay=0.1, amsgrad=True),
    ),
    "adabound": (AdaBound(0.01), partial(adabound, **ADAM, final=0.1, gamma=1e-3, decay=0.0)),
    "adabound, other": (
        AdaBound(**other, final_lr=0.03, gamma=0.2, weight_decay=0.1),
        partial(adabound, **OTHER, final=0.03, gamma=0.2, decay=0.1),
    ),
    "amsbound": (
        AMSBound(**other, final_lr=0.03, gamma=0.2, weight_decay=0.1),
        partial(adabound, **OTHER, final=0.03, gamma=0.2, decay=0.1, amsbound=True),
    ),
    "adamod": (AdaMod(0.01), partial(adamod, **ADAM, b3=0.999, decay=0.0)),
    "adamod, other": (
        AdaMod(**other, beta3=0.7, weight_decay=0.1),
        partial(adamod, **OTHER, b3=0.7, decay=0.1),
    ),
    "diffgrad": (DiffGrad(0.01), partial(diffgrad, **ADAM, decay=0.0)),
    "diffgrad, other": (DiffGrad(**other, weight_decay=0.1), partial(diffgrad, **OTHER, decay=0.1)),
    "yogi": (Yogi(), partial(yogi, **{**ADAM, "eps": 1e-3}, first=1e-6, decay=0.0)),
    "yogi, other": (
        Yogi(**other, initial_accumulator=0.1, weight_decay=0.1),
        partial(yogi, **OTHER, first=0.1, decay=0.1),
    ),
    "qhadam": (QHAdam(0.01), partial(qhadam, **{**ADAM, "b1": 0.995}, nu1=0.7, nu2=1.0, decay=0.0)),
    "qhadam, other": (
        QHAdam(**other, nu1=0.3, nu2=0.8, weight_decay=0.1),
        partial(qhadam, **OTHER, nu1=0.3, nu2=0.8, decay=0.1),
    ),
    "laprop": (LaProp(0.01), partial(laprop, rates=[0.01] * 200, b1=0.9, b2=0.999, eps=1e-15, decay=0.0)),
    "laprop, scheduled": (
        LaProp(WarmupLinear(0.02, 5, 100), beta1=0.6, beta2=0.95, eps=1e-4, weight_decay=0.1),
        partial(
            laprop,
            rates=[0.02 * min(t / 5, max(0.0, (100 - t) / 95)) for t in range(200)],
            b1=0.6,
            b2=0.95,
            eps=1e-4,
            decay=0.1,
        ),
    ),
    "adopt": (ADOPT(0.01), partial(adopt, **{**ADAM, "b2": 0.9999, "eps": 1e-6}, decay=0.0)),
    "adopt, other": (ADOPT(**other, weight_decay=0.1), partial(adopt, **OTHER, decay=0.1)),
    "adan": (Adan(0.01), partial(adan, lr=0.01, b1=0.98, b2=0.92, b3=0.99, eps=1e-8, decay=0.0)),
    "adan, other": (
        Adan(**other, beta3=0.8, weight_decay=0.1),
        partial(adan, **OTHER, b3=0.8, decay=0.1),
    ),
    "adan, decoupled": (
        Adan(**other, beta3=0.8, weight_decay=0.1, decay="before"),
        partial(adan, **OTHER, b3=0.8, decay=0.1, proximal=False),
    ),
    "ademamix": (AdEMAMix(0.01), partial(ademamix, **ADAM, b3=0.9999, alpha=5.0, decay=0.0)),
    "ademamix, other": (
        AdEMAMix(**other, beta3=0.98, alpha=2.0, weight_decay=0.1, t_alpha_beta3=15.0),
        partial(ademamix, **OTHER, b3=0.98, alpha=2.0, decay=0.1, warmup=15),
    ),
    "simplified ademamix": (
        SimplifiedAdEMAMix(1e-4),
        partial(simplified_ademamix, lr=1e-4, b1=0.99, b2=0.95, alpha=0.0, eps=1e-8, decay=0.0),
    ),
    "simplified ademamix, other": (
        SimplifiedAdEMAMix(**other, alpha=3.0, weight_decay=0.1),
        partial(simplified_ademamix, **OTHER, alpha=3.0, decay=0.1),
    ),
    "madgrad": (MADGRAD(), partial(madgrad, lr=0.01, momentum=0.9, eps=1e-6, decay=0.0)),
    "madgrad, other": (
        MADGRAD(0.02, momentum=0.5, eps=1e-3, weight_decay=0.1),
        partial(madgrad, lr=0.02, momentum=0.5, eps=1e-3, decay=0.1),
    ),
    "stable_adamw": (StableAdamW(0.01), partial(stable_adamw, **{**ADAM, "b2": 0.99}, decay=0.01)),
    "stable_adamw, other": (StableAdamW(**other, weight_decay=0.1), partial(stable_adamw, **OTHER, decay=0.1)),
    "hn_adam": (HNAdam(0.001), partial(hn_adam, **{**ADAM, "lr": 0.001}, norm=2.0, decay=0.0)),
    "hn_adam, other": (HNAdam(**other, norm=3.0), partial(hn_adam, **OTHER, norm=3.0, decay=0.0)),
    "mars": (
        MARS(),
        partial(mars, lr=3e-3, b1=0.95, b2=0.99, b1_1d=0.9, b2_1d=0.95, eps=1e-8, gamma=0.025, decay=0.0),
    ),
    "mars, other": (
        MARS(**other, beta1_1d=0.5, beta2_1d=0.8, gamma=0.5, weight_decay=0.1),
        partial(mars, **OTHER, b1_1d=0.5, b2_1d=0.8, gamma=0.5, decay=0.1),
    ),
}


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_follows_the_equations(rule, reference, assert_follows):
    assert_follows(rule, reference, shapes=[(6, 4), (5,)])


def test_the_band_of_adabound_follows_the_schedule(train, xp, draws):
    start, grads = draws(1)
    # At a quarter of the peak, the band is at a quarter of its height, as if built around that rate.
    warming = AdaBound(WarmupLinear(0.04, 4, 100), final_lr=0.4)
    late = warming.delta(xp, *arguments(xp, warming, start, grads[0], lr=0.01))[0]
    constant = AdaBound(0.01, final_lr=0.1)
    steady = constant.delta(xp, *arguments(xp, constant, start, grads[0], lr=0.01))[0]
    np.testing.assert_allclose(np.asarray(late), np.asarray(steady), rtol=1e-12)


def arguments(xp, rule, start, grad, lr):
    hyper = {name: xp.asarray(value, dtype=xp.float64) for name, value in {**rule.hyperparameters(), "lr": lr}.items()}
    state = {slot: xp.asarray(value) for slot, value in rule.init(start).items()}
    return xp.asarray(start), xp.asarray(grad), state, hyper, xp.asarray(1)


def test_adopt_does_not_move_at_the_first_update(train, xp, draws):
    start, grads = draws(1)
    param, state = train(ADOPT(0.1), xp, start, lambda _, i: grads[i], 1)
    np.testing.assert_array_equal(param, start)
    np.testing.assert_array_equal(state["exp_avg_sq"], grads[0] ** 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NAdam(variant="optax"), "variant"),  # type: ignore[arg-type] # wrong on purpose
        (lambda: QHAdam(nu2=2.0), "nu2"),
        (lambda: MADGRAD(momentum=1.0), "momentum"),
        (lambda: AdEMAMix(beta1=0.0, t_alpha_beta3=10.0), "beta1"),
        (lambda: Adan(beta3=1.0), "beta3"),
        (lambda: Yogi(initial_accumulator=-1.0), "initial_accumulator"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
