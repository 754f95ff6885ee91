"""Rules that scale a tensor by its norms, or share a second moment, against the equations of their papers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import CAME, LAMB, LARS, Adafactor, AdamMini, Fromage, NovoGrad

norm = np.linalg.norm
SHAPES = [(6, 4), (4, 6), (5,), (2, 3, 4)]


def lamb(theta, grads, *, lr, b1, b2, eps, decay, corrected=True, most=None, clip=False):
    m = v = np.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        m_hat, v_hat = (m / (1 - b1**t), v / (1 - b2**t)) if corrected else (m, v)
        r = m_hat / (np.sqrt(v_hat) + eps) + decay * theta
        ratio = (norm(theta) if most is None else min(norm(theta), most)) / norm(r)
        theta = theta - lr * (min(ratio, 1.0) if clip else ratio) * r
    return theta


def lars(theta, grads, *, lr, momentum, decay, trust, eps, nesterov=False, clip=False):
    buffer = np.zeros_like(theta)
    for g in grads:
        ratio = trust * norm(theta) / (norm(g) + decay * norm(theta) + eps)
        g = (g + decay * theta) * (min(ratio / lr, 1.0) if clip else ratio)
        buffer = momentum * buffer + g
        theta = theta - lr * (g + momentum * buffer if nesterov else buffer)
    return theta


def novograd(theta, grads, *, lr, b1, b2, eps, decay, averaging):
    m = v = None
    for g in grads:
        v = norm(g) ** 2 if v is None else b2 * v + (1 - b2) * norm(g) ** 2
        u = g / (np.sqrt(v) + eps) + decay * theta
        m = u if m is None else b1 * m + (1 - b1 if averaging else 1) * u
        theta = theta - lr * m
    return theta


def fromage(theta, grads, *, lr):
    for g in grads:
        theta = (theta - lr * g * norm(theta) / norm(g)) / np.sqrt(1 + lr**2)
    return theta


def adam_mini(theta, grads, *, lr, b1, b2, eps, decay, block):
    m, v = np.zeros_like(theta), 0.0
    axes = tuple(range(1, theta.ndim)) if block == "row" and theta.ndim > 1 else None
    for t, g in enumerate(grads, 1):
        theta = theta * (1 - lr * decay)
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * np.mean(g**2, axis=axes, keepdims=True)
        theta = theta - lr * m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps)
    return theta


def came(theta, grads, *, lr, b1, b2, b3, eps1, eps2, most, decay):
    m = np.zeros_like(theta)
    averages: dict[str, Any] = {}

    def average(name, beta, value):
        averages[name] = beta * averages.get(name, 0.0) + (1 - beta) * value
        return averages[name]

    def factored(name, beta, square):
        rows = average(f"{name} rows", beta, square.mean(axis=-1))
        columns = average(f"{name} columns", beta, square.mean(axis=-2))
        return np.einsum("...r,...c->...rc", rows / rows.mean(axis=-1, keepdims=True), columns)

    for g in grads:
        square = g**2 + eps1
        second = factored("g", b2, square) if theta.ndim > 1 else average("g", b2, square)
        u = g / np.sqrt(second)
        u = u / max(1.0, np.sqrt(np.mean(u**2)) / most)
        m = b1 * m + (1 - b1) * u
        step = m / np.sqrt(factored("u", b3, (u - m) ** 2 + eps2)) if theta.ndim > 1 else m
        theta = theta * (1 - lr * decay) - lr * step
    return theta


ADAM = {"lr": 0.01, "b1": 0.9, "b2": 0.999, "eps": 1e-8}
OTHER = {"lr": 0.02, "b1": 0.6, "b2": 0.95, "eps": 1e-4}
other: dict[str, Any] = {"lr": 0.02, "beta1": 0.6, "beta2": 0.95, "eps": 1e-4}
CASES = {
    "lamb": (LAMB(0.01), partial(lamb, **{**ADAM, "eps": 1e-6}, decay=0.0)),
    "lamb, other": (LAMB(**other, weight_decay=0.1), partial(lamb, **OTHER, decay=0.1)),
    "lamb, early": (
        LAMB(**other, weight_decay=0.1, bias_correction=False, max_norm=2.0),
        partial(lamb, **OTHER, decay=0.1, corrected=False, most=2.0),
    ),
    "lamb, clipped": (
        LAMB(**other, weight_decay=0.5, trust_clip=True),
        partial(lamb, **OTHER, decay=0.5, clip=True),
    ),
    "lars": (LARS(), partial(lars, lr=1.0, momentum=0.9, decay=0.0, trust=1e-3, eps=1e-8)),
    "lars, nesterov": (
        LARS(0.5, momentum=0.8, weight_decay=0.1, trust_coefficient=0.01, eps=1e-3, nesterov=True),
        partial(lars, lr=0.5, momentum=0.8, decay=0.1, trust=0.01, eps=1e-3, nesterov=True),
    ),
    "lars, clipped": (
        LARS(0.01, momentum=0.0, weight_decay=0.1, trust_coefficient=0.02, trust_clip=True),
        partial(lars, lr=0.01, momentum=0.0, decay=0.1, trust=0.02, eps=1e-8, clip=True),
    ),
    "novograd": (NovoGrad(), partial(novograd, lr=1e-3, b1=0.95, b2=0.98, eps=1e-8, decay=0.0, averaging=False)),
    "novograd, averaging": (
        NovoGrad(**other, weight_decay=0.1, grad_averaging=True),
        partial(novograd, **OTHER, decay=0.1, averaging=True),
    ),
    "fromage": (Fromage(), partial(fromage, lr=0.01)),
    "adam_mini": (AdamMini(0.01), partial(adam_mini, **ADAM, decay=0.0, block="row")),
    "adam_mini, tensor": (
        AdamMini(**other, weight_decay=0.1, block="tensor"),
        partial(adam_mini, **OTHER, decay=0.1, block="tensor"),
    ),
    "came": (
        CAME(),
        partial(came, lr=2e-4, b1=0.9, b2=0.999, b3=0.9999, eps1=1e-30, eps2=1e-16, most=1.0, decay=0.0),
    ),
    "came, other": (
        CAME(0.01, beta1=0.6, beta2=0.95, beta3=0.9, eps1=1e-6, eps2=1e-4, clip_threshold=0.5, weight_decay=0.1),
        partial(came, lr=0.01, b1=0.6, b2=0.95, b3=0.9, eps1=1e-6, eps2=1e-4, most=0.5, decay=0.1),
    ),
}


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_follows_the_equations(rule, reference, assert_follows):
    assert_follows(rule, reference, SHAPES)


@pytest.mark.parametrize("rule", [LAMB(0.1), LARS(0.1), Fromage(0.1)], ids=lambda rule: type(rule).__name__)
def test_a_parameter_of_zero_takes_the_plain_step(rule, train, xp, draws):
    _, grads = draws(1)
    param, _ = train(rule, xp, np.zeros((6, 4)), lambda _, i: grads[i] + 1.0, 1)
    assert np.all(param < 0.0)


def test_lars_decays_where_the_gradient_is_zero(train, xp):
    start = np.array([3.0, 4.0])
    param, _ = train(LARS(0.1, weight_decay=0.5), xp, start, lambda p, _: 0 * p, 1)
    np.testing.assert_allclose(param, start * 0.95, rtol=1e-15)


def test_adam_mini_keeps_one_second_moment_for_a_block():
    param = np.zeros((6, 4, 3), np.float32)
    assert AdamMini().init(param)["exp_avg"].shape == (6, 4, 3)
    assert AdamMini().init(param)["exp_avg_sq"].shape == (6, 1, 1)
    assert AdamMini().init(param[0, 0])["exp_avg_sq"].shape == (1,)
    assert AdamMini(block="tensor").init(param)["exp_avg_sq"].shape == (1, 1, 1)


@pytest.mark.parametrize("rule", [Adafactor(), CAME()], ids=lambda rule: type(rule).__name__)
def test_factors_have_one_number_for_each_row_and_column(rule):
    sizes = {slot: value.shape for slot, value in rule.init(np.zeros((2, 30, 40), np.float32)).items()}
    assert {shape for slot, shape in sizes.items() if "row" in slot} == {(2, 30, 1)}
    assert {shape for slot, shape in sizes.items() if "col" in slot} == {(2, 1, 40)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LARS(momentum=0.0, nesterov=True), "nesterov"),
        (lambda: AdamMini(block="head"), "block"),  # type: ignore[arg-type] # wrong on purpose
        (lambda: Adafactor(d=0.0), "d must"),
        (lambda: Adafactor(eps1=0.0), "eps1"),
        (lambda: CAME(clip_threshold=0.0), "clip_threshold"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
