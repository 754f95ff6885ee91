"""MoMo, MoMo-Adam and SGD with Polyak's step, against their equations over all parameters of a group."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import GroupArrays, MoMo, MoMoAdam, PolyakSGD

ADAPTING: dict[str, Any] = {"weight_decay": 0.05, "lower_bound": 0.5, "adapt_lower_bound": True}


def momo(theta, grads, *, loss, lr=1.0, beta=0.9, bound=0.0, decay=0.0, adapt=False):
    m, a, s = grads[0], loss[0], np.sum(grads[0] * theta)
    lowest, grown = bound, 1 + lr * decay
    for g, f in zip(grads, loss, strict=True):
        m, a, s = (beta * x + (1 - beta) * new for x, new in ((m, g), (a, f), (s, np.sum(g * theta))))
        reach = grown * (a - s) + np.sum(m * theta)
        if adapt and reach < grown * bound:
            bound = max(reach / (2 * grown), lowest)
        square = np.sum(m * m)
        tau = min(lr, max(reach - grown * bound, 0.0) / square)
        if adapt:
            bound = max(a - s + np.sum(m * theta) - tau * square / 2, lowest)
        theta = theta / grown - tau * m
    return theta


def momo_adam(theta, grads, *, loss, lr=1e-2, b1=0.9, b2=0.999, eps=1e-8, bound=0.0, decay=0.0, adapt=False):
    m = v = a = s = 0.0
    lowest, grown = bound, 1 + lr * decay
    for t, (g, f) in enumerate(zip(grads, loss, strict=True), 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        a, s = b1 * a + (1 - b1) * f, b1 * s + (1 - b1) * np.sum(g * theta)
        w, share = np.sqrt(v / (1 - b2**t)) + eps, 1 - b1**t
        reach = grown * (a - s) + np.sum(m * theta)
        if adapt and reach < grown * share * bound:
            bound = max(reach / (2 * share * grown), lowest)
        square = np.sum(m * m / w)
        tau = min(lr / share, max(reach - grown * share * bound, 0.0) / square)
        if adapt:
            bound = max((a - s + np.sum(m * theta) - tau * square / 2) / share, lowest)
        theta = theta / grown - tau * m / w
    return theta


def polyak(theta, grads, *, loss, lr=1.0, c=1.0, bound=0.0, eps=0.0, plus=False):
    for g, f in zip(grads, loss, strict=True):
        gap = max(f - bound, 0.0) if plus else f - bound
        theta = theta - min(gap / (c * np.sum(g * g) + eps), lr) * g
    return theta


CASES = {
    "momo": (MoMo(), momo),
    "momo, adapting": (
        MoMo(0.05, beta=0.7, **ADAPTING),
        partial(momo, lr=0.05, beta=0.7, bound=0.5, decay=0.05, adapt=True),
    ),
    "momo_adam": (MoMoAdam(), momo_adam),
    "momo_adam, adapting": (
        MoMoAdam(0.5, beta1=0.7, beta2=0.9, eps=1e-3, **ADAPTING),
        partial(momo_adam, lr=0.5, b1=0.7, b2=0.9, eps=1e-3, bound=0.5, decay=0.05, adapt=True),
    ),
    "polyak_sgd": (
        PolyakSGD(0.01, c=0.5, lower_bound=2.0, eps=0.2),
        partial(polyak, lr=0.01, c=0.5, bound=2.0, eps=0.2),
    ),
    "polyak_sgd, plus": (PolyakSGD(lower_bound=2.0, variant="sps+"), partial(polyak, bound=2.0, plus=True)),
}


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_follows_its_equations(rule, reference, assert_follows):
    assert_follows(rule, reference)


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_parameters_of_a_group_are_one_vector(rule, reference, xp):
    rng = np.random.default_rng(0)
    start, grads, losses = rng.normal(size=9), rng.normal(size=(6, 9)), rng.uniform(1, 3, 6)

    def parts(x):
        return {"w": xp.asarray(x[:6].reshape(2, 3)), "b": xp.asarray(x[6:])}

    params = parts(start)
    first = {"w": start[:6].reshape(2, 3), "b": start[6:]}
    states = {name: {slot: xp.asarray(x) for slot, x in rule.init(first[name]).items()} for name in first}
    shared = {slot: xp.asarray(x) for slot, x in rule.init_shared(first).items()}
    numbers = {**rule.hyperparameters(), "lr": rule.lr}
    hyper = {name: xp.asarray(value, dtype=xp.float64) for name, value in numbers.items()}
    for step, (grad, loss) in enumerate(zip(grads, losses, strict=True), 1):
        group = GroupArrays(params, parts(grad), states, {**shared, "loss": xp.asarray(loss)})
        params, states, shared = rule.update_all(xp, group, hyper, xp.asarray(step))
    joined = np.concatenate([np.asarray(params["w"]).reshape(-1), np.asarray(params["b"])])
    np.testing.assert_allclose(joined, reference(start, grads, loss=losses), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rule", [MoMo, MoMoAdam, PolyakSGD])
def test_one_step_takes_the_model_of_the_loss_to_its_bound(rule, train, xp):
    slope = np.array([3.0, -4.0])

    def loss(p):  # linear, and -1 at the start
        return float(slope @ p) - 1.0

    param, _ = train(rule(1e3, lower_bound=-2.0), xp, np.zeros(2), lambda p, _: xp.asarray(slope), 1, loss=loss)
    assert loss(param) == pytest.approx(-2.0, rel=1e-6)


def test_a_loss_below_the_bound_moves_back_or_not_at_all(train, xp):
    start, grad = np.ones(2), np.array([3.0, -4.0])
    ends = {
        variant: train(PolyakSGD(lower_bound=5.0, variant=variant), xp, start, lambda *_: xp.asarray(grad), 1)[0]
        for variant in ("sps", "sps+")
    }
    np.testing.assert_allclose(ends["sps"], start + 2.0 / 25.0 * grad, rtol=1e-15)  # the loss is 3
    np.testing.assert_array_equal(ends["sps+"], start)


@pytest.mark.parametrize(
    ("rule", "settings"),
    [
        (MoMo, {"beta": 1.0}),
        (MoMo, {"lower_bound": float("nan")}),
        (MoMoAdam, {"eps": 0.0}),
        (MoMoAdam, {"weight_decay": -0.1}),
        (PolyakSGD, {"c": 0.0}),
        (PolyakSGD, {"eps": -1.0}),
        (PolyakSGD, {"variant": "max"}),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(rule, settings):
    (name,) = settings
    with pytest.raises(ConfigurationError, match=name):
        rule(**settings)
