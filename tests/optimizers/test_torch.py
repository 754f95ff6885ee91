"""Rules that torch has too: the same trajectories and the same defaults."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch

from edgeopt.optimizers import (
    ASGD,
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    NAdam,
    RAdam,
    RMSprop,
    Rprop,
)

# Rule, torch's class, settings that both spell alike, those that only one has, tolerance in float64. torch keeps the
# rates of ASGD and the product of NAdam in float32.
CASES = [
    (ASGD, torch.optim.ASGD, {"lr": 0.01, "weight_decay": 0.05, "lambd": 0.1, "t0": 8.0}, {}, {}, 3e-7),
    (ASGD, torch.optim.ASGD, {"lr": 0.01, "maximize": True}, {}, {}, 3e-7),
    (Rprop, torch.optim.Rprop, {"lr": 0.01}, {}, {}, 1e-12),
    (
        Rprop,
        torch.optim.Rprop,
        {"lr": 0.02, "maximize": True},
        {"eta_minus": 0.4, "eta_plus": 1.3, "step_min": 1e-3, "step_max": 0.05},
        {"etas": (0.4, 1.3), "step_sizes": (1e-3, 0.05)},
        1e-12,
    ),
    (Adamax, torch.optim.Adamax, {"lr": 0.01, "weight_decay": 0.05}, {}, {}, 1e-12),
    (Adamax, torch.optim.Adamax, {"eps": 1e-3}, {"beta1": 0.5, "beta2": 0.9}, {"betas": (0.5, 0.9)}, 1e-12),
    (NAdam, torch.optim.NAdam, {"lr": 0.01, "weight_decay": 0.05}, {}, {}, 1e-8),
    (
        NAdam,
        torch.optim.NAdam,
        {"lr": 0.01, "weight_decay": 0.05, "momentum_decay": 0.1, "eps": 1e-4},
        {"decay": "before"},
        {"decoupled_weight_decay": True},
        1e-8,
    ),
    (RAdam, torch.optim.RAdam, {"lr": 0.01, "weight_decay": 0.05}, {}, {}, 1e-12),
    (
        RAdam,
        torch.optim.RAdam,
        {"lr": 0.01, "weight_decay": 0.05, "eps": 1e-4},
        {"beta1": 0.5, "beta2": 0.97, "decay": "before"},
        {"betas": (0.5, 0.97), "decoupled_weight_decay": True},
        1e-12,
    ),
    (RMSprop, torch.optim.RMSprop, {"lr": 0.01, "weight_decay": 0.05}, {}, {}, 1e-12),
    (RMSprop, torch.optim.RMSprop, {"lr": 0.01, "alpha": 0.8, "momentum": 0.9, "eps": 1e-5}, {}, {}, 1e-12),
    (RMSprop, torch.optim.RMSprop, {"lr": 0.01, "centered": True, "momentum": 0.5}, {}, {}, 1e-12),
    (Adagrad, torch.optim.Adagrad, {"lr": 0.01, "weight_decay": 0.05}, {}, {}, 1e-12),
    (Adagrad, torch.optim.Adagrad, {"lr_decay": 0.1, "initial_accumulator_value": 0.2, "eps": 1e-4}, {}, {}, 1e-12),
    (Adadelta, torch.optim.Adadelta, {"weight_decay": 0.05}, {}, {}, 1e-12),
    (Adadelta, torch.optim.Adadelta, {"lr": 0.5, "rho": 0.7, "eps": 1e-3}, {}, {}, 1e-12),
    (Adam, torch.optim.Adam, {"weight_decay": 0.05}, {"decay": "before"}, {"decoupled_weight_decay": True}, 1e-12),
]
DEFAULTS = {
    ASGD: torch.optim.ASGD,
    Adadelta: torch.optim.Adadelta,
    Adafactor: torch.optim.Adafactor,
    Adagrad: torch.optim.Adagrad,
    Adam: torch.optim.Adam,
    AdamW: torch.optim.AdamW,
    Adamax: torch.optim.Adamax,
    NAdam: torch.optim.NAdam,
    RAdam: torch.optim.RAdam,
    RMSprop: torch.optim.RMSprop,
    Rprop: torch.optim.Rprop,
}
# What torch packs into a tuple.
PARTS = {
    "betas": ("beta1", "beta2"),
    "etas": ("eta_minus", "eta_plus"),
    "step_sizes": ("step_min", "step_max"),
    "eps": ("eps1", "eps2"),
}
ADAFACTOR = [
    {"weight_decay": 0.05},
    {"lr": 0.5, "beta2_decay": -0.6, "d": 1.5},
    {"lr": 0.1, "maximize": True},
]


@pytest.mark.parametrize(("rule", "torch_rule", "shared", "ours", "theirs", "tolerance"), CASES)
def test_equals_torch(rule, torch_rule, shared, ours, theirs, tolerance, assert_follows, train_torch):
    def reference(start, grads):
        return train_torch(torch_rule, start, grads, **shared, **theirs)[0]

    assert_follows(rule(**shared, **ours), reference, float64=tolerance)


@pytest.mark.parametrize("settings", ADAFACTOR, ids=str)
@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5,), (2, 3, 4), (2, 3, 3, 2)], ids=str)
def test_adafactor_equals_torch(settings, shape, assert_follows, train_torch):
    def reference(start, grads):
        eps = (float(np.finfo(np.float32).eps), 1e-3)
        return train_torch(torch.optim.Adafactor, start, grads, eps=eps, **settings)[0]

    assert_follows(Adafactor(eps1=float(np.finfo(np.float32).eps), **settings), reference, [shape])


@pytest.mark.parametrize(("rule", "torch_rule"), DEFAULTS.items(), ids=lambda rule: rule.__name__)
def test_defaults_are_those_of_torch(rule, torch_rule):
    theirs = dict(torch_rule([torch.nn.Parameter(torch.zeros(1))]).defaults)
    for packed, names in PARTS.items():
        if isinstance(theirs.get(packed), tuple):
            theirs.update(zip(names, theirs.pop(packed), strict=True))
    common = {field.name for field in fields(rule)} & set(theirs)
    assert len(common) >= 4
    assert {name: getattr(rule(), name) for name in common} == {name: theirs[name] for name in common}


def test_slots_of_torch_keep_their_names_and_values(train, train_torch, draws, xp):
    start, grads = draws(25)
    for rule, torch_rule in DEFAULTS.items():
        if rule is not ASGD:  # torch keeps its rates as state
            _, state = train(rule(lr=0.01), xp, start, lambda _, i: grads[i], 25)
            _, expected = train_torch(torch_rule, start, grads, lr=0.01)
            assert set(state) == set(expected) - {"step"}
            for slot, value in state.items():
                np.testing.assert_allclose(value, expected[slot], rtol=1e-6, atol=1e-30, err_msg=f"{rule}, {slot}")


def test_the_average_of_asgd_is_that_of_torch(train, train_torch, draws, xp):
    start, grads = draws(25)
    _, state = train(ASGD(lr=0.01, t0=5.0), xp, start, lambda _, i: grads[i], 25)
    _, expected = train_torch(torch.optim.ASGD, start, grads, lr=0.01, t0=5.0)
    np.testing.assert_allclose(state["ax"], expected["ax"], rtol=1e-6, atol=1e-6)
