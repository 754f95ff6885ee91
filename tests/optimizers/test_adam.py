from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import Adam, AdamW

PAIRS = [(Adam, torch.optim.Adam), (AdamW, torch.optim.AdamW)]
COMBINATIONS = [
    {"weight_decay": decay, "amsgrad": amsgrad, "maximize": maximize}
    for decay, amsgrad, maximize in itertools.product((0.0, 0.05), (False, True), (False, True))
]
NUMBERS = [
    {"lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-8},
    {"lr": 0.3, "betas": (0.5, 0.9), "eps": 1e-3},
    {"lr": 0.01, "betas": (0.0, 0.0), "eps": 1e-8},
]


def draws(steps, dtype):
    """Gradients from 1e-9 to 10, so that the place of eps matters; the first is zero in one column."""
    rng = np.random.default_rng(5)
    grads = rng.normal(size=(steps, 6, 4)) * 10.0 ** rng.uniform(-9, 1, (1, 6, 4))
    grads[0, :, 1] = 0.0
    return rng.normal(size=(6, 4)).astype(dtype), grads.astype(dtype)


def ours(rule, numbers, settings):
    beta1, beta2 = numbers["betas"]
    return rule(lr=numbers["lr"], beta1=beta1, beta2=beta2, eps=numbers["eps"], **settings)


@pytest.mark.parametrize(("rule", "reference"), PAIRS)
@pytest.mark.parametrize("numbers", NUMBERS, ids=str)
@pytest.mark.parametrize("settings", COMBINATIONS, ids=str)
def test_equals_torch(rule, reference, numbers, settings, xp, train, train_torch):
    start, grads = draws(25, np.float64)
    param, state = train(ours(rule, numbers, settings), xp, start, lambda _, i: grads[i], 25)
    expected, expected_state = train_torch(reference, start, grads, **numbers, **settings)
    np.testing.assert_allclose(param, expected, rtol=1e-12, atol=1e-12)
    assert set(state) == set(expected_state) - {"step"}
    for slot, value in state.items():
        np.testing.assert_allclose(value, expected_state[slot], rtol=1e-12, atol=1e-30)


@pytest.mark.parametrize(("rule", "reference"), PAIRS)
@pytest.mark.parametrize("settings", COMBINATIONS[::2], ids=str)
def test_stays_with_torch_in_float32(rule, reference, settings, xp, train, train_torch):
    start, grads = draws(200, np.float32)
    param, _ = train(ours(rule, NUMBERS[0], settings), xp, start, lambda _, i: grads[i], 200)
    expected, _ = train_torch(reference, start, grads, **NUMBERS[0], **settings)
    np.testing.assert_allclose(param, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("rule", "reference"), PAIRS)
def test_has_the_defaults_of_torch(rule, reference):
    theirs = reference([torch.nn.Parameter(torch.zeros(1))]).defaults
    mine = rule()
    assert (mine.lr, (mine.beta1, mine.beta2), mine.eps) == (theirs["lr"], theirs["betas"], theirs["eps"])
    assert mine.weight_decay == theirs["weight_decay"]


def test_terms_that_are_off_leave_no_trace():
    assert list(AdamW().init(np.zeros(2))) == ["exp_avg", "exp_avg_sq"]
    assert list(AdamW(amsgrad=True).init(np.zeros(2))) == ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"]
    assert AdamW().hyperparameters() == {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01}
    assert "weight_decay" not in AdamW(weight_decay=0.0).hyperparameters()
    assert "weight_decay" not in Adam().hyperparameters()


@pytest.mark.parametrize("rule", [Adam, AdamW])
@pytest.mark.parametrize(
    "settings",
    [{"beta1": 1.0}, {"beta2": -0.1}, {"beta2": float("nan")}, {"eps": -1e-8}, {"weight_decay": -1.0}],
    ids=str,
)
def test_impossible_settings_are_refused(rule, settings):
    (name,) = settings
    with pytest.raises(ConfigurationError, match=name):
        rule(**settings)
