"""LoRA-RITE against factorisations, on pairs of factors."""

from __future__ import annotations

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import GroupArrays, LoRARITE

NAMES = ("net.lora_A.weight", "net.lora_B.weight")


def inverse_root(v, eps):
    values, vectors = np.linalg.eigh((v + v.T) / 2)
    return (vectors / (np.sqrt(np.maximum(values, 0.0) + eps**2) + eps)) @ vectors.T


def lora_rite(a, b, grads, *, lr, b1=0.9, b2=0.999, eps=1e-6, most=1.0, skip=1.0, decay=0.0):
    x, m, v, old = [a.T, b], [0.0, 0.0], [0.0, 0.0], [np.zeros_like(a.T), np.zeros_like(b)]
    for t, (ga, gb) in enumerate(grads, 1):
        w1, w2 = (beta * (1 - beta ** (t - 1)) / (1 - beta**t) for beta in (b1, b2))
        q, r = zip(*map(np.linalg.qr, x), strict=True)
        inverse = [np.linalg.pinv(each) for each in r]
        g = [ga.T @ inverse[1], gb @ inverse[0]]
        g = [np.where(skip and np.sqrt(np.mean(each**2)) > skip, 0.0, each) for each in g]
        total = np.sqrt(sum(np.sum(each**2) for each in g))
        g = [each * min(most / total, 1.0) if most and total else each for each in g]
        new = []
        for me, other in ((0, 1), (1, 0)):
            p = q[other].T @ old[other]
            v[me] = w2 * (p @ v[me] @ p.T if t > 1 else 0.0) + (1 - w2) * g[me].T @ g[me] / len(g[me])
            m[me] = w1 * (m[me] @ p.T if t > 1 else 0.0) + (1 - w1) * g[me] @ inverse_root(v[me], eps)
            new.append(x[me] - lr * (m[me] @ inverse[other].T + decay * x[me]))
        x, old = new, list(q)
    return x[0].T, x[1]


def run(rule, a, b, grads):
    params = dict(zip(NAMES, (a, b), strict=True))
    states = {name: rule.init(value) for name, value in params.items()}
    shared = rule.init_shared(params)
    hyper = {name: np.asarray(value) for name, value in {**rule.hyperparameters(), "lr": rule.lr}.items()}
    for t, pair in enumerate(grads, 1):
        given = dict(zip(NAMES, pair, strict=True))
        params, states, _ = rule.update_all(
            numpy_namespace, GroupArrays(params, given, states, shared), hyper, np.asarray(t)
        )
    return tuple(params.values())


def problem(seed=0, rank=3):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(rank, 6)), rng.normal(size=(5, rank))
    return a, b, [(0.1 * rng.normal(size=a.shape), 0.1 * rng.normal(size=b.shape)) for _ in range(25)]


@pytest.mark.parametrize(
    ("rule", "settings"),
    [
        (LoRARITE(0.01), {}),
        (
            LoRARITE(0.02, beta1=0.6, beta2=0.9, eps=1e-3, max_norm=0.2, skip_above=0.12, weight_decay=0.1),
            {"b1": 0.6, "b2": 0.9, "eps": 1e-3, "most": 0.2, "skip": 0.12, "decay": 0.1},
        ),
        (LoRARITE(0.01, max_norm=0.0, skip_above=0.0), {"most": 0.0, "skip": 0.0}),
    ],
    ids=["default", "other", "neither clipped nor skipped"],
)
def test_follows_the_equations(rule, settings):
    a, b, grads = problem()
    expected = lora_rite(a, b, grads, lr=rule.lr, **settings)
    for ours, theirs, start in zip(run(rule, a, b, grads), expected, (a, b), strict=True):
        assert np.abs(theirs - start).max() > 1e-3
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-7)


def test_steps_of_the_product_do_not_depend_on_its_factors():
    a, b, _ = problem()
    rng = np.random.default_rng(1)
    mix, slopes = rng.normal(size=(3, 3)), 0.1 * rng.normal(size=(2, 5, 6))
    unmix = np.linalg.inv(mix)
    rule, products = LoRARITE(1e-3, skip_above=0.0), []
    for left, right in ((b, a), (b @ mix, unmix @ a)):
        # The gradient of a function of the product whose slope there is given.
        new_a, new_b = run(rule, right, left, [(left.T @ slopes[0], slopes[0] @ right.T)])
        products.append((new_b - left) @ right + left @ (new_a - right))
    np.testing.assert_allclose(products[0], products[1], rtol=1e-5, atol=1e-9)


def test_the_first_step_of_a_new_adapter_moves_the_factor_that_is_zero():
    a, b, _ = problem()
    slope = np.random.default_rng(2).normal(size=(5, 6))
    new_a, new_b = run(LoRARITE(0.01, skip_above=0.0), a, 0.0 * b, [(0.0 * a, slope @ a.T)])
    np.testing.assert_array_equal(new_a, a)
    assert np.abs(new_b).max() > 1e-3


def test_factors_of_two_ranks_are_refused():
    with pytest.raises(ConfigurationError, match="no factors of one rank"):
        LoRARITE().init_shared(dict(zip(NAMES, (np.zeros((3, 6)), np.zeros((5, 4))), strict=True)))


@pytest.mark.parametrize("settings", [{"eps": 0.0}, {"max_rank": 0}], ids=str)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        LoRARITE(**settings)
