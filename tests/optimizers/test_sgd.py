from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import SGD

COMBINATIONS = [
    {"momentum": momentum, "dampening": dampening, "weight_decay": decay, "nesterov": nesterov, "maximize": maximize}
    for momentum, dampening, decay, nesterov, maximize in itertools.product(
        (0.0, 0.9), (0.0, 0.3), (0.0, 0.05), (False, True), (False, True)
    )
    if not nesterov or (momentum and not dampening)
]


def draws(steps, dtype):
    rng = np.random.default_rng(3)
    grads = rng.normal(size=(steps, 6, 4)) * 10.0 ** rng.uniform(-3, 1, (steps, 6, 4))
    return rng.normal(size=(6, 4)).astype(dtype), grads.astype(dtype)


@pytest.mark.parametrize("settings", COMBINATIONS, ids=str)
def test_equals_torch(settings, xp, train, train_torch):
    start, grads = draws(25, np.float64)
    param, state = train(SGD(lr=0.01, **settings), xp, start, lambda _, i: grads[i], 25)
    expected, expected_state = train_torch(torch.optim.SGD, start, grads, lr=0.01, **settings)
    np.testing.assert_allclose(param, expected, rtol=1e-12, atol=1e-12)
    assert set(state) == set(expected_state)
    for slot, value in state.items():
        np.testing.assert_allclose(value, expected_state[slot], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}], ids=str)
def test_stays_with_torch_in_float32(settings, xp, train, train_torch):
    start, grads = draws(200, np.float32)
    param, _ = train(SGD(lr=0.01, **settings), xp, start, lambda _, i: grads[i], 200)
    expected, _ = train_torch(torch.optim.SGD, start, grads, lr=0.01, **settings)
    np.testing.assert_allclose(param, expected, rtol=2e-5, atol=2e-5)


def test_terms_that_are_off_leave_no_trace():
    assert SGD(0.1).init(np.zeros(2)) == {}
    assert SGD(0.1).hyperparameters() == {}
    assert list(SGD(0.1, momentum=0.9).init(np.zeros(2))) == ["momentum_buffer"]
    assert SGD(0.1, momentum=0.9).hyperparameters() == {"momentum": 0.9}
    # Without a buffer there is nothing to dampen.
    assert SGD(0.1, dampening=0.5).hyperparameters() == {}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"momentum": -0.1}, "momentum"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"dampening": float("nan")}, "dampening"),
        ({"nesterov": True}, "nesterov"),
        ({"nesterov": True, "momentum": 0.9, "dampening": 0.1}, "nesterov"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        SGD(0.1, **settings)
