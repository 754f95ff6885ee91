"""Rules that estimate the distance to the solution, against their equations over all parameters of a group."""

from __future__ import annotations

from functools import partial

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import DAdaptAdaGrad, DAdaptAdam, DAdaptAdan, DAdaptLion, DAdaptSGD, DoG, GroupArrays, Prodigy

INF = float("inf")


def prodigy(
    theta, grads, *, lr=1.0, b1=0.9, b2=0.999, b3=None, eps=1e-8, decay=0.0, decouple=True, corrected=False,
    safeguard=False, d0=1e-6, coef=1.0, growth=INF, every=1,
):  # fmt: skip
    b3 = np.sqrt(b2) if b3 is None else b3
    start, m, v, s = theta, 0.0, 0.0, np.zeros(theta.size)[::every]
    d = largest = d0
    numerator = 0.0
    for t, g in enumerate(grads, 1):
        if not decouple:
            g = g + decay * theta
        k = d * lr * (np.sqrt(1 - b2**t) / (1 - b1**t) if corrected else 1.0)
        slope, gone = g.ravel()[::every], (start - theta).ravel()[::every]
        numerator = b3 * numerator + d / d0 * k * slope @ gone
        m, v = b1 * m + d * (1 - b1) * g, b2 * v + d * d * (1 - b2) * g * g
        s = b3 * s + d / d0 * (d if safeguard else k) * slope
        if np.abs(s).sum() == 0.0:
            continue
        estimate = coef * numerator / np.abs(s).sum()
        d = max(d, estimate) if d == d0 else d
        largest = max(largest, estimate)
        d = min(largest, d * growth)
        if decouple:
            theta = theta - decay * k * theta
        theta = theta - k * m / (np.sqrt(v) + d * eps)
    return theta


def dadapt_adam(
    theta, grads, *, lr=1.0, b1=0.9, b2=0.999, eps=1e-8, decay=0.0, decouple=False, corrected=False, d0=1e-6, growth=INF
):
    m = v = s = np.zeros_like(theta)
    d, numerator, root = d0, 0.0, np.sqrt(b2)
    for t, g in enumerate(grads, 1):
        if not decouple:
            g = g + decay * theta
        k = d * lr * (np.sqrt(1 - b2**t) / (1 - b1**t) if corrected else 1.0)
        numerator = root * numerator + (1 - root) * k * np.sum(g * s / (np.sqrt(v) + eps))
        m, v, s = b1 * m + (1 - b1) * k * g, b2 * v + (1 - b2) * g * g, root * s + (1 - root) * k * g
        d = max(d, min(numerator / ((1 - root) * np.abs(s).sum()), d * growth))
        theta = theta - (decay * k * theta if decouple else 0.0) - m / (np.sqrt(v) + eps)
    return theta


def dadapt_sgd(theta, grads, *, lr=1.0, momentum=0.0, decay=0.0, d0=1e-6, growth=INF):
    start, s, d, numerator = theta, np.zeros_like(theta), d0, 0.0
    first = np.linalg.norm(grads[0] + decay * theta)
    for g in grads:
        g = g + decay * theta
        k = d * lr / first
        numerator += k * np.sum(g * s)
        s = s + k * g
        d = max(d, min(2 * numerator / np.linalg.norm(s), d * growth))
        theta = momentum * theta + (1 - momentum) * (start - s)
    return theta


def dadapt_lion(theta, grads, *, lr=1.0, b1=0.9, b2=0.99, decay=0.0, d0=1e-6):
    m = s = np.zeros_like(theta)
    d, numerator, root = d0, 0.0, np.sqrt(b2)
    for g in grads:
        k = d * lr
        u = np.sign(b1 * m + (1 - b1) * g)
        theta = theta * (1 - k * decay) - k * u
        m = b2 * m + (1 - b2) * k * g
        numerator = root * numerator + (1 - root) * k * np.sum(u * s)
        s = root * s + (1 - root) * k * u
        d = max(d, numerator / ((1 - root) * np.abs(s).sum()))
    return theta


def dadapt_adagrad(theta, grads, *, lr=1.0, momentum=0.0, eps=1e-6, first=1e-6, decay=0.0, d0=1e-6, growth=INF):
    start, s, a, d, weighted = theta, 0.0, first, d0, 0.0
    for g in grads:
        g = g + decay * theta
        k = d * lr
        a, s = a + g * g, s + k * g
        w = np.sqrt(a) + eps
        weighted += k**2 * np.sum(g * g / w)
        d = max(d, min((np.sum(s * s / w) - weighted) / np.abs(s).sum(), d * growth))
        theta = momentum * theta + (1 - momentum) * (start - s / w)
    return theta


def dadapt_adan(
    theta, grads, *, lr=1.0, b1=0.98, b2=0.92, b3=0.99, eps=1e-8, decay=0.02, prox=True, d0=1e-6, growth=INF
):
    m = v = n = s = np.zeros_like(theta)
    d, weighted, before = d0, 0.0, grads[0]
    for g in grads:
        k, change, before = d * lr, g - before, g
        m, v = b1 * m + (1 - b1) * k * g, b2 * v + (1 - b2) * k * change
        n, s = b3 * n + (1 - b3) * (g + b2 * change) ** 2, b3 * s + (1 - b3) * k * g
        w = np.sqrt(n) + eps
        weighted = b3 * weighted + (1 - b3) * k**2 * np.sum(g * g / w)
        d = max(d, min((np.sum(s * s / w) / (1 - b3) - weighted) / np.abs(s).sum(), d * growth))
        theta = theta if prox else theta * (1 - k * decay)
        theta = theta - (m + b2 * v) / w
        theta = theta / (1 + k * decay) if prox else theta
    return theta


def dog(theta, grads, *, lr=1.0, reps=1e-6, eps=1e-8, decay=0.0):
    start, square = theta, 0.0
    distance = reps * (1 + np.linalg.norm(theta))
    for g in grads:
        g = g + decay * theta
        distance = max(distance, np.linalg.norm(theta - start))
        square += np.sum(g * g)
        theta = theta - lr * distance / np.sqrt(square + eps) * g
    return theta


# With a larger d0 the estimates leave it within the 25 steps. Over 200 they may grow without end, as these gradients
# lead nowhere, unless their growth is limited.
CASES = {
    "prodigy": (Prodigy(d0=1e-4, growth_rate=1.02), partial(prodigy, d0=1e-4, growth=1.02)),
    "prodigy, other": (
        Prodigy(0.5, betas=(0.8, 0.95, 0.9), eps=1e-4, weight_decay=0.1, d0=1e-3, d_coef=0.7, growth_rate=1.02,
                use_bias_correction=True),
        partial(prodigy, lr=0.5, b1=0.8, b2=0.95, b3=0.9, eps=1e-4, decay=0.1, d0=1e-3, coef=0.7, growth=1.02,
                corrected=True),
    ),
    "prodigy, sliced": (
        Prodigy(beta2=0.99, weight_decay=0.1, decouple=False, safeguard_warmup=True, slice_p=5, d0=1e-3),
        partial(prodigy, b2=0.99, decay=0.1, decouple=False, safeguard=True, every=5, d0=1e-3),
    ),
    "adam": (DAdaptAdam(), dadapt_adam),
    "adam, other": (
        DAdaptAdam(0.5, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1, use_bias_correction=True, d0=1e-3,
                   growth_rate=1.05),
        partial(dadapt_adam, lr=0.5, b1=0.8, b2=0.95, eps=1e-4, decay=0.1, corrected=True, d0=1e-3, growth=1.05),
    ),
    "adam, decoupled": (
        DAdaptAdam(weight_decay=0.1, decouple=True, d0=1e-3, growth_rate=1.02),
        partial(dadapt_adam, decay=0.1, decouple=True, d0=1e-3, growth=1.02),
    ),
    "sgd": (DAdaptSGD(growth_rate=1.02), partial(dadapt_sgd, growth=1.02)),
    "sgd, other": (
        DAdaptSGD(0.5, momentum=0.6, weight_decay=0.1, d0=1e-3, growth_rate=1.05),
        partial(dadapt_sgd, lr=0.5, momentum=0.6, decay=0.1, d0=1e-3, growth=1.05),
    ),
    "lion": (DAdaptLion(), dadapt_lion),
    "lion, other": (
        DAdaptLion(0.5, beta1=0.6, beta2=0.9, weight_decay=0.1, d0=1e-3),
        partial(dadapt_lion, lr=0.5, b1=0.6, b2=0.9, decay=0.1, d0=1e-3),
    ),
    "adagrad": (DAdaptAdaGrad(), dadapt_adagrad),
    "adagrad, other": (
        DAdaptAdaGrad(
            0.5, momentum=0.6, eps=1e-3, initial_accumulator_value=1e-2, weight_decay=0.1, d0=1e-3, growth_rate=1.05
        ),
        partial(dadapt_adagrad, lr=0.5, momentum=0.6, eps=1e-3, first=1e-2, decay=0.1, d0=1e-3, growth=1.05),
    ),
    "adan": (DAdaptAdan(growth_rate=1.02), partial(dadapt_adan, growth=1.02)),
    "adan, other": (
        DAdaptAdan(
            0.5, beta1=0.8, beta2=0.7, beta3=0.9, eps=1e-3, weight_decay=0.1, no_prox=True, d0=1e-3, growth_rate=1.05
        ),
        partial(dadapt_adan, lr=0.5, b1=0.8, b2=0.7, b3=0.9, eps=1e-3, decay=0.1, prox=False, d0=1e-3, growth=1.05),
    ),
    "dog": (DoG(), dog),
    "dog, other": (
        DoG(0.5, reps_rel=1e-3, eps=1e-3, weight_decay=0.1),
        partial(dog, lr=0.5, reps=1e-3, eps=1e-3, decay=0.1),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_follows_the_equations(rule, reference, assert_follows):
    # In float32 Prodigy knows the way it went, θ₀ - θ, to a few digits only.
    assert_follows(rule, reference, [(6, 4), (5,)], float32=1e-4 if isinstance(rule, Prodigy) else 2e-5)


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_parameters_of_a_group_share_the_estimate(rule, reference, xp, draws):
    start, grads = draws(25, (12,))
    parts = {"a": slice(0, 5), "b": slice(5, 12)}
    if rule.elementwise:  # otherwise every fifth element counts anew in each
        params = {name: xp.asarray(start[part]) for name, part in parts.items()}
        states = {name: {k: xp.asarray(v) for k, v in rule.init(start[part]).items()} for name, part in parts.items()}
        shared = {k: xp.asarray(v) for k, v in rule.init_shared({n: start[p] for n, p in parts.items()}).items()}
        numbers = {**rule.hyperparameters(), "lr": rule.lr}
        hyper = {name: xp.asarray(value, dtype=xp.float64) for name, value in numbers.items()}
        for t, grad in enumerate(grads, 1):
            slopes = {name: xp.asarray(grad[part]) for name, part in parts.items()}
            group = GroupArrays(params, slopes, states, shared)
            params, states, shared = rule.update_all(xp, group, hyper, xp.asarray(t))
        together = np.concatenate([np.asarray(params[name]) for name in parts])
        np.testing.assert_allclose(together, reference(start, grads), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "rule", [Prodigy(), DAdaptAdam(), DAdaptSGD(), DAdaptLion(), DAdaptAdaGrad(), DAdaptAdan(), DoG()]
)
def test_starts_when_there_is_a_gradient(rule, train, draws):
    start, grads = draws(5)
    late, _ = train(rule, numpy_namespace, start, lambda _, i: grads[i - 2] if i > 1 else 0 * start, 5)
    early, _ = train(rule, numpy_namespace, start, lambda _, i: grads[i], 3)
    np.testing.assert_allclose(late - start, early - start, rtol=1e-6)


def test_a_rate_of_zero_leaves_the_averages(train, draws):
    start, grads = draws(5)
    for rule in (Prodigy(d0=1e-3), DAdaptAdam(d0=1e-3), DAdaptAdaGrad(d0=1e-3), DAdaptAdan(d0=1e-3)):
        _, before = train(rule, numpy_namespace, start, lambda _, i: grads[i], 3)
        hyper = {**rule.hyperparameters(), "lr": 0.0}
        _, after = rule.update(
            numpy_namespace, start, grads[3], before, {k: np.asarray(v) for k, v in hyper.items()}, np.asarray(4)
        )
        for slot in before.keys() - {"previous_grad"}:
            np.testing.assert_array_equal(after[slot], before[slot], err_msg=slot)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Prodigy(d0=0.0), "d0"),
        (lambda: Prodigy(eps=0.0), "eps"),
        (lambda: Prodigy(beta3=1.0), "beta3"),
        (lambda: Prodigy(growth_rate=0.9), "growth_rate"),
        (lambda: Prodigy(slice_p=0), "slice_p"),
        (lambda: DAdaptAdam(eps=0.0), "eps"),
        (lambda: DAdaptSGD(momentum=1.0), "momentum"),
        (lambda: DAdaptAdaGrad(momentum=1.0), "momentum"),
        (lambda: DAdaptAdaGrad(eps=0.0), "eps"),
        (lambda: DAdaptAdaGrad(initial_accumulator_value=0.0), "initial_accumulator_value"),
        (lambda: DAdaptAdan(eps=0.0), "eps"),
        (lambda: DAdaptAdan(beta3=1.0), "beta3"),
        (lambda: DAdaptLion(d0=0.0), "d0"),
        (lambda: DAdaptLion(growth_rate=0.9), "growth_rate"),
        (lambda: DoG(reps_rel=0.0), "reps_rel"),
        (lambda: DoG(eps=0.0), "eps"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
