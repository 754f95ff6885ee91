"""The width of each parameter's state under a budget."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import edgeopt
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import AdamW, Lion, Optimizer, RMSprop, per_layer_quant
from edgeopt.optimizers.per_layer import _choices, _cost
from edgeopt.quantization import as_state_format

Arrays = dict[str, np.ndarray[Any, Any]]


class Attentive(nn.Module):
    """An embedding, a layer of attention and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(200, 64)
        self.mix, self.back = nn.Linear(64, 192), nn.Linear(64, 64)
        self.head = nn.Linear(64, 200)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(x)
        q, k, v = self.mix(hidden).chunk(3, -1)
        hidden = hidden + self.back((q @ k.transpose(1, 2) / 8.0).softmax(-1) @ v)
        return self.head(hidden).reshape(-1, 200)


def trained(optimizer: Optimizer) -> edgeopt.Bundle:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    words = rng.zipf(1.5, (20, 8, 17)) % 200
    bundle = edgeopt.export(
        Attentive(), torch.from_numpy(words[0, :, :-1]), loss="cross_entropy", optimizer=optimizer, verbose=False
    )
    session = bundle.session()
    for each in words:
        session.step({"x": each[:, :-1].copy(), "target": each[:, 1:].reshape(-1).copy()})
    return replace(bundle, state=session.state())


@pytest.fixture(scope="module")
def bundle() -> edgeopt.Bundle:
    return trained(AdamW(1e-3))


def size(bundle: edgeopt.Bundle) -> float:
    names = [spec.name for spec in bundle.manifest.tensors if spec.role == "optimizer"]
    return sum(np.asarray(bundle.state[name]).nbytes for name in names) / 2**20


def change(bundle: edgeopt.Bundle, state: Any) -> float:
    """What the criterion says of a whole choice, computed from the states before and after."""
    there = bundle.with_optimizer(AdamW(1e-3, state=state)).bundle.with_optimizer(AdamW(1e-3)).bundle
    total = 0.0
    for spec in bundle.manifest.tensors:
        if spec.role == "parameter":
            slots = [f"optimizer.{slot}.{spec.name}" for slot in ("exp_avg", "exp_avg_sq")]
            (m, v), (n, w) = ([np.float64(each.state[slot]) for slot in slots] for each in (bundle, there))
            total += float(np.sum(v * (m / (np.sqrt(v) + 1e-8) - n / (np.sqrt(w) + 1e-8)) ** 2))
    return total


@pytest.mark.parametrize("share", [0.2, 0.3, 0.6, 1.0])
def test_what_is_chosen_fits_and_beats_one_format_for_all(bundle, share):
    budget = share * size(bundle)
    state = per_layer_quant(bundle, budget)
    assert size(bundle.with_optimizer(AdamW(1e-3, state=state)).bundle) <= budget
    if share < 0.26:
        assert {"int8", "int4"} <= set(state.values())
        assert change(bundle, state) < change(bundle, "int4")
    if share == 0.3:
        assert change(bundle, state) <= change(bundle, "int8")
    if share == 1.0:
        assert set(state.values()) == {None}


def test_more_memory_is_never_worse(bundle):
    costs = [change(bundle, per_layer_quant(bundle, share * size(bundle))) for share in (0.15, 0.2, 0.3, 0.6)]
    assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize(
    ("optimizer", "share"),
    [(Lion(1e-4), 0.2), (RMSprop(1e-3), 0.2), (AdamW(1e-3, state="bf16"), 0.35)],
    ids=["m", "v", "narrow"],
)
def test_rules_of_one_moment_and_of_narrow_state_are_weighed_too(optimizer: Optimizer, share: float):
    bundle = trained(optimizer)
    budget = share * size(bundle)
    state = per_layer_quant(bundle, budget, ("int8", "int4"))
    assert "int4" in state.values()
    inner: Any = getattr(optimizer, "inner", optimizer)
    assert size(bundle.with_optimizer(type(inner)(1e-4, state=state)).bundle) <= budget


def test_a_module_with_gradients_will_do():
    torch.manual_seed(0)
    model = Attentive()
    with pytest.raises(ConfigurationError, match="backward"):
        per_layer_quant(model, 1.0)
    model(torch.arange(32).reshape(2, 16)).square().mean().backward()
    state = per_layer_quant(model, 0.07)
    assert state.keys() == dict(model.named_parameters()).keys()
    assert "int4" in state.values()
    edgeopt.export(
        model, torch.zeros(2, 16, dtype=torch.int64), loss="cross_entropy", optimizer=AdamW(state=state), verbose=False
    )


def test_a_budget_that_cannot_be_met_says_so(bundle):
    with pytest.raises(ConfigurationError, match="narrower"):
        per_layer_quant(bundle, 0.001)
    with pytest.raises(ConfigurationError, match="int8_dynamic"):
        per_layer_quant(bundle, 1.0, ("int5",))
    with pytest.raises(ConfigurationError, match="bundle"):
        per_layer_quant({}, 1.0)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=2, max_size=3), st.floats(0.15, 1.0))
def test_the_greedy_choice_is_near_the_best_one(sizes, share):
    """Of a few parameters all choices can be tried. Greedy can only lose what one more move overshoots by."""
    rng = np.random.default_rng(1)
    grads = {
        str(i): (10.0**each * rng.normal(size=(64, 64 * (i + 1)))).astype(np.float32) for i, each in enumerate(sizes)
    }
    module = type("Module", (), {})()
    module.named_parameters = lambda: [(name, _Gradient(torch.from_numpy(each))) for name, each in grads.items()]
    names = (None, "int8", "int4")
    states = [None if name is None else as_state_format(name) for name in names]
    own = {
        name: _choices((each, {"exp_avg": each, "exp_avg_sq": each**2}), names, states) for name, each in grads.items()
    }
    budget = share * sum(2 * each.nbytes for each in grads.values())
    chosen = per_layer_quant(module, budget / 2**20, names)
    costs = {name: {each.state: each for each in choices} for name, choices in own.items()}
    assert sum(costs[name][state].size for name, state in chosen.items()) <= budget
    mine = sum(costs[name][state].cost for name, state in chosen.items())
    fits = [each for each in itertools.product(*own.values()) if sum(one.size for one in each) <= budget]
    best = min(sum(one.cost for one in each) for each in fits)
    dearest = max(max(choice.cost for choice in choices) for choices in own.values())
    assert best <= mine <= best + dearest
    assert _cost({"exp_avg": grads["0"]}, {"exp_avg": grads["0"]}) == 0.0


class _Gradient:
    """A parameter of a module, as far as it is looked at."""

    def __init__(self, grad: torch.Tensor) -> None:
        self.grad = grad
