"""The learned scale of another optimizer's steps, against its equations over all parameters of a group."""

from __future__ import annotations

from functools import partial

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import SGD, Adam, DAdaptSGD, GroupArrays, Lookahead, Mechanic
from edgeopt.schedules import WarmupLinear


def mechanic(theta, grads, *, direction, weight=1e-2, eps=1e-8, first=1e-6, count=6):
    """Where it has gone is found from the parameters, as the paper has it; `direction` steps from a gradient."""
    start, betas = theta, 1 - 10.0 ** -np.arange(1, count + 1)
    m = v = r = np.zeros(count)
    s = np.full(count, first)
    for g in grads:
        u = direction(g)
        gone = (start - theta) / (s.sum() + eps)
        slope = g + weight * s.sum() * np.linalg.norm(g) / (np.linalg.norm(theta) + eps) * theta
        h = np.sum(slope * gone)
        r = betas * r + np.clip(h, -m, m) * s
        m, v = np.maximum(betas * m, abs(h) + eps), betas**2 * v + h**2
        s = (first / count * m + np.maximum(r, 0)) / (np.sqrt(v) + eps)
        theta = start - s.sum() * (gone - u)
    return theta


def sgd(lr, momentum=0.0):
    buffer = 0.0

    def step(g):
        nonlocal buffer
        buffer = momentum * buffer + g
        return -lr * buffer

    return step


def follow(theta, grads, *, lr, momentum=0.0, **settings):
    return mechanic(theta, grads, direction=sgd(lr, momentum), **settings)


# A large first scale, so that float64 knows the way from θ₀ - θ to twelve digits.
CASES = {
    "default": (Mechanic(SGD(1.0), s_init=1e-2), partial(follow, lr=1.0, first=1e-2)),
    "other": (
        Mechanic(SGD(0.5, momentum=0.9), regularization=0.1, eps=1e-4, s_init=1e-2, num_betas=3),
        partial(follow, lr=0.5, momentum=0.9, weight=0.1, eps=1e-4, first=1e-2, count=3),
    ),
}


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_follows_the_equations(rule, reference, assert_follows):
    assert_follows(rule, reference, [(6, 4), (5,), (2, 3, 4)], float32=1e-4)


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_parameters_of_a_group_share_the_scale(rule, reference, xp, draws):
    start, grads = draws(25, (12,))
    parts = {"a": slice(0, 5), "b": slice(5, 12)}
    params = {name: xp.asarray(start[part]) for name, part in parts.items()}
    states = {name: {k: xp.asarray(v) for k, v in rule.init(start[part]).items()} for name, part in parts.items()}
    shared = {k: xp.asarray(v) for k, v in rule.init_shared({n: start[p] for n, p in parts.items()}).items()}
    hyper = {name: xp.asarray(value, dtype=xp.float64) for name, value in rule.hyperparameters().items()}
    hyper["lr"] = xp.asarray(rule.inner.lr, dtype=xp.float64)
    for t, grad in enumerate(grads, 1):
        slopes = {name: xp.asarray(grad[part]) for name, part in parts.items()}
        params, states, shared = rule.update_all(xp, GroupArrays(params, slopes, states, shared), hyper, xp.asarray(t))
    together = np.concatenate([np.asarray(params[name]) for name in parts])
    np.testing.assert_allclose(together, reference(start, grads), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("distance", [1e-2, 1.0, 1e2])
def test_finds_the_scale_of_the_problem(distance, train):
    scales, minimum = np.array([1.0, 10.0, 0.1]), distance * np.array([1.0, -2.0, 0.5])
    rule = Mechanic(Adam(WarmupLinear(1.0, 0, 2000)))
    param, _ = train(rule, numpy_namespace, np.zeros(3), lambda p, _: scales * (p - minimum), 2000)
    assert np.sum(scales * (param - minimum) ** 2) < 1e-2 * np.sum(scales * minimum**2)


def test_climbs_as_far_as_it_would_descend(xp, train, draws):
    start, grads = draws(25)
    down, _ = train(Mechanic(Lookahead(Adam(1.0))), xp, start, lambda _, i: grads[i], 25)
    up, _ = train(Mechanic(Lookahead(Adam(1.0, maximize=True))), xp, start, lambda _, i: -grads[i], 25)
    np.testing.assert_array_equal(up, down)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_without_a_gradient_nothing_moves(dtype, xp, train, draws):
    start, _ = draws(1, dtype=dtype)
    param, state = train(Mechanic(Adam(1.0)), xp, start, lambda p, _: 0 * p, 3)
    np.testing.assert_array_equal(param, start)
    assert all(np.isfinite(array).all() for array in state.values())


def test_the_inner_optimizer_keeps_its_own(draws):
    schedule = WarmupLinear(1.0, 2, 20)
    inner = DAdaptSGD(schedule, momentum=0.8)
    outer = Mechanic(inner, eps=1e-6)
    assert outer.schedule is schedule
    param, _ = draws(1)
    assert list(outer.init(param)) == [*inner.init(param), "mechanic_start", "mechanic_offset"]
    assert set(inner.init_shared({"": param})) < set(outer.init_shared({"": param}))
    own = {"mechanic.regularization": 1e-2, "mechanic.eps": 1e-6}
    assert outer.hyperparameters() == {**inner.hyperparameters(), **own}
    assert outer.elementwise
    assert not Mechanic(Adam(cautious=True)).elementwise


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mechanic(0.1), "inner"),  # type: ignore[arg-type] # wrong on purpose
        (lambda: Mechanic(SGD(), regularization=-1.0), "regularization"),
        (lambda: Mechanic(SGD(), eps=0.0), "eps"),
        (lambda: Mechanic(SGD(), s_init=0.0), "s_init"),
        (lambda: Mechanic(SGD(), num_betas=0), "num_betas"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
