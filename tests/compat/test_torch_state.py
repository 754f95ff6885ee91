"""State from torch's optimizers and back: training goes on in the other framework as if nothing had happened."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import array_api_compat.numpy as xp
import numpy as np
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.compat.torch import load_torch_state, torch_state
from edgeopt.compat.torch.state import PREFIX, STEP
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import SGD, AdamW, Optimizer, from_config
from edgeopt.schedules import Constant
from edgeopt.training import names as training_names
from edgeopt_runtime import StateError

Arrays = dict[str, np.ndarray]
SHAPES = {"layer.weight": (4, 3), "layer.bias": (4,), "0.weight": (2, 2, 3)}
# Options that make each optimizer keep all the state it can.
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "ASGD": {"lr": 0.05, "lambd": 0.01, "t0": 2},
    "Adadelta": {},
    "Adafactor": {"lr": 0.05},
    "Adagrad": {"lr_decay": 0.1},
    "Adam": {"amsgrad": True},
    "AdamW": {},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {"betas": (0.7, 0.8)},
    "RMSprop": {"momentum": 0.9, "centered": True},
    "Rprop": {},
    "SGD": {"momentum": 0.9, "dampening": 0.1},
}


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    """torch keeps scalars of a state in its default dtype."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def start() -> Arrays:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape) for name, shape in SHAPES.items()}


def gradient(name: str, step: int) -> np.ndarray:
    rng = np.random.default_rng([step, len(name)])
    return rng.normal(size=SHAPES[name])


def blank(rule: Optimizer, params: Arrays) -> Arrays:
    """The optimizer's part of a bundle's state, before the first update."""
    slots = {
        training_names.slot_name(slot, name): value
        for name, param in params.items()
        for slot, value in rule.init(param).items()
    }
    return {**slots, training_names.STEP: np.asarray(0)}


def ours(rule: Optimizer, params: Arrays, state: Arrays, steps: range) -> tuple[Arrays, Arrays]:
    params, state = dict(params), dict(state)
    numbers = {name: np.asarray(value) for name, value in rule.hyperparameters().items()}
    rate = {name: np.asarray(value) for name, value in rule.schedule.hyperparameters().items()}
    for done in steps:
        lr = rule.schedule(xp, rate, np.asarray(done))
        step = state[STEP] + 1
        for name, param in params.items():
            slots = {slot: state[training_names.slot_name(slot, name)] for slot in rule.init(param)}
            hyper = {**numbers, "lr": lr}
            params[name], new = rule.update(xp, param, gradient(name, done), slots, hyper, step)
            state.update({training_names.slot_name(slot, name): value for slot, value in new.items()})
        state[STEP] = step
    return params, state


class Torch:
    """A torch optimizer over the parameters."""

    def __init__(self, kind: str, params: Arrays) -> None:
        self.params = {name: nn.Parameter(torch.tensor(value)) for name, value in params.items()}
        self.optimizer = getattr(torch.optim, kind)(self.params.values(), **OPTIMIZERS[kind])

    def run(self, steps: range) -> Arrays:
        for done in steps:
            for name, param in self.params.items():
                param.grad = torch.tensor(gradient(name, done))
            self.optimizer.step()
        return {name: param.detach().numpy().copy() for name, param in self.params.items()}


def close(one: Arrays, other: Arrays) -> None:
    for name in SHAPES:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_training_begun_in_torch_goes_on_here(kind: str) -> None:
    reference = Torch(kind, start())
    middle = reference.run(range(5))
    rule = from_config(reference.optimizer)
    assert isinstance(rule, Optimizer)
    step = 5 if kind == "SGD" else None  # which does not count
    state = dict(load_torch_state(blank(rule, middle), reference.optimizer.state_dict(), list(SHAPES), step=step))
    assert state[STEP] == 5
    params, _ = ours(rule, middle, state, range(5, 12))
    close(params, reference.run(range(5, 12)))


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_training_begun_here_goes_on_in_torch(kind: str) -> None:
    straight = Torch(kind, start())
    rule = from_config(straight.optimizer)
    assert isinstance(rule, Optimizer)
    params, state = ours(rule, start(), blank(rule, start()), range(5))
    second = Torch(kind, params)
    second.optimizer.load_state_dict(torch_state(state, second.optimizer, list(SHAPES)))
    close(second.run(range(5, 12)), straight.run(range(12)))
    # And back again: nothing is lost on the way.
    returned = load_torch_state(state, torch_state(state, second.optimizer, list(SHAPES)), list(SHAPES))
    assert returned.keys() == state.keys()
    for name, array in returned.items():
        if name != STEP:
            np.testing.assert_array_equal(array, state[name])


def test_muons_momentum_goes_both_ways() -> None:
    """torch's Muon computes the step in bfloat16, so only the state can be compared."""
    param = nn.Parameter(torch.tensor(start()["layer.weight"]))
    optimizer = torch.optim.Muon([param], lr=0.1)
    for done in range(3):
        param.grad = torch.tensor(gradient("layer.weight", done))
        optimizer.step()
    rule = from_config(optimizer)
    assert isinstance(rule, Optimizer)
    state = blank(rule, {"layer.weight": param.detach().numpy()})
    loaded = load_torch_state(state, optimizer.state_dict(), ["layer.weight"], step=3)
    assert loaded[STEP] == 3
    np.testing.assert_array_equal(
        loaded["optimizer.momentum_buffer.layer.weight"], optimizer.state[param]["momentum_buffer"].numpy()
    )
    back = torch_state(loaded, optimizer, ["layer.weight"])["state"][0]
    assert back.keys() == {"momentum_buffer"}
    assert torch.equal(back["momentum_buffer"], optimizer.state[param]["momentum_buffer"])


def test_plain_sgd_has_no_state_to_carry() -> None:
    param = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([param], lr=0.1)
    param.grad = torch.ones(2)
    optimizer.step()
    state = {STEP: np.asarray(7)}
    assert load_torch_state(state, optimizer.state_dict(), ["w"]) == state
    assert torch_state(state, optimizer, ["w"])["state"] == {}


@pytest.fixture(scope="module")
def bundle() -> edgeopt.Bundle:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    return edgeopt.export(
        model, torch.zeros(2, 4, dtype=torch.float64), loss=edgeopt.losses.CrossEntropy(), optimizer=AdamW(0.01)
    )


def test_a_bundle_goes_on_where_torch_stopped_and_the_other_way_round(bundle: edgeopt.Bundle) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    model.load_state_dict({name: torch.tensor(value) for name, value in bundle.session().parameters().items()})
    # Named parameters put the names into the state.
    optimizer = torch.optim.AdamW(model.named_parameters(), lr=0.01)
    rng = np.random.default_rng(0)
    data = [(rng.standard_normal((6, 4)), rng.integers(0, 3, 6)) for _ in range(9)]

    def in_torch(batches: Any) -> None:
        for x, y in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(torch.tensor(x)), torch.tensor(y)).backward()
            optimizer.step()

    in_torch(data[:3])
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    state = load_torch_state(bundle, optimizer.state_dict()).state
    moved = replace(bundle, state={**state, **weights})
    assert bundle.state[STEP] == 0
    session = moved.session(threads=1)
    for batch in data[3:6]:
        session.step(batch)
    in_torch(data[3:6])
    for name, value in model.named_parameters():
        assert np.abs(session.parameters()[name] - value.detach().numpy()).max() <= 1e-12

    optimizer.load_state_dict(torch_state(session.state(), optimizer))
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(torch.tensor(session.parameters()[name]))
    in_torch(data[6:])
    for batch in data[6:]:
        session.step(batch)
    for name, value in model.named_parameters():
        assert np.abs(session.parameters()[name] - value.detach().numpy()).max() <= 1e-12


def test_before_the_first_update_there_is_nothing_to_carry(bundle: edgeopt.Bundle) -> None:
    parameters = [nn.Parameter(torch.tensor(value)) for value in bundle.session().parameters().values()]
    optimizer = torch.optim.AdamW(parameters)
    names = list(bundle.session().parameters())
    assert torch_state(bundle, optimizer, names)["state"] == {}
    loaded = load_torch_state(bundle, optimizer.state_dict(), names)
    assert all(np.array_equal(loaded.state[name], bundle.state[name]) for name in bundle.state)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("SGD", {"momentum": 0.9}), ("SGD", {}), ("Muon", {}), ("Adam", {}), ("RMSprop", {})],
    ids=str,
)
def test_a_schedule_goes_on_where_torch_stopped(kind: str, settings: dict[str, Any]) -> None:
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)
    model = nn.Linear(4, 3, bias=False)
    optimizer = getattr(torch.optim, kind)(model.named_parameters(), lr=0.1, **settings)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40)

    def train(count: int) -> list[float]:
        rates = []
        for _ in range(count):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.zero_grad()
            model(torch.ones(2, 4)).square().sum().backward()
            optimizer.step()
            scheduler.step()
        return rates

    train(20)
    saved = copy.deepcopy(optimizer.state_dict())  # whose counts are the live ones
    described = {"name": "CosineAnnealingLR", "kwargs": {"T_max": 40}}
    config = {"name": kind, "param_groups": saved["param_groups"], "scheduler": described}
    rule = from_config(config)
    moving = edgeopt.export(model, torch.ones(2, 4), loss=edgeopt.losses.MSE(), optimizer=rule)
    batch = (np.ones((2, 4), np.float32), np.zeros((2, 3), np.float32))
    if kind in ("SGD", "Muon"):
        with pytest.raises(StateError, match="does not count its updates"):
            load_torch_state(moving, saved)
    loaded = load_torch_state(moving, saved, scheduler=scheduler.state_dict())
    assert loaded.state[STEP] == load_torch_state(moving, saved, step=20).state[STEP] == 20
    session = loaded.session()
    np.testing.assert_allclose([session.step(batch)["lr"] for _ in range(3)], train(3), rtol=1e-6)

    fixed = replace(rule, lr=0.1)  # type: ignore[type-var] # a rule
    constant = edgeopt.export(model, torch.ones(2, 4), loss=edgeopt.losses.MSE(), optimizer=fixed)
    assert int(load_torch_state(constant, saved).state[STEP]) == (
        20 if kind in ("Adam", "RMSprop") else bool(saved["state"])
    )
    with pytest.raises(ConfigurationError, match="a scheduler has moved the rate from"):
        from_config({"name": kind, "param_groups": saved["param_groups"]})
    assert from_config({**config, "scheduler": None}).schedule == Constant(saved["param_groups"][0]["lr"])  # type: ignore[union-attr]


def test_counts_that_contradict_each_other_are_refused() -> None:
    reference = Torch("AdamW", start())
    middle = reference.run(range(3))
    saved, names, state = reference.optimizer.state_dict(), list(SHAPES), blank(AdamW(), middle)
    with pytest.raises(StateError, match="stepped 2 times and the optimizer 3 times"):
        load_torch_state(state, saved, names, scheduler={"last_epoch": 2})
    assert load_torch_state(state, saved, names, scheduler={"last_epoch": 3})[STEP] == 3
    assert load_torch_state(state, saved, names, scheduler={"last_epoch": 2}, step=9)[STEP] == 9
    with pytest.raises(StateError, match="with `last_epoch`"):
        load_torch_state(state, saved, names, scheduler={})
    for wrong in (-1, 2.5, True, 2**63):
        with pytest.raises(StateError, match="step must be the number"):
            load_torch_state(state, saved, names, step=wrong)  # type: ignore[arg-type] # wrong on purpose
    with pytest.raises(ConfigurationError, match="begins in the middle"):
        from_config(
            {
                "name": "SGD",
                "defaults": {},
                "scheduler": {"name": "StepLR", "kwargs": {"step_size": 3, "last_epoch": 4}},
            }
        )


def test_the_names_are_those_of_the_training_package() -> None:
    assert STEP == training_names.STEP
    assert training_names.slot_name("slot", "a.b") == f"{PREFIX}slot.a.b"


def test_what_does_not_fit_is_refused() -> None:
    reference = Torch("AdamW", start())
    middle = reference.run(range(2))
    saved, names = reference.optimizer.state_dict(), list(SHAPES)
    adamw, sgd = blank(AdamW(), middle), blank(SGD(momentum=0.9), middle)
    with pytest.raises(StateError, match="give `names`"):
        load_torch_state(adamw, saved)
    with pytest.raises(StateError, match="holds 3 parameters, but there are 1"):
        load_torch_state(adamw, saved, names[:1])
    with pytest.raises(StateError, match="no optimizer state for a parameter 'x'"):
        load_torch_state(adamw, saved, ["x", *names[1:]])
    with pytest.raises(StateError, match="no optimizer state for a parameter 'x'"):
        torch_state(adamw, reference.optimizer, ["x", *names[1:]])
    with pytest.raises(StateError, match="has exp_avg, exp_avg_sq, where the rule has momentum_buffer"):
        load_torch_state(sgd, saved, names)
    with pytest.raises(StateError, match=r"shape \(4, 3\) in torch and \(4,\) here"):
        load_torch_state(adamw, saved, [names[1], names[0], names[2]])
    saved["state"][0]["step"] += 1
    with pytest.raises(StateError, match="different numbers of times"):
        load_torch_state(adamw, saved, names)
