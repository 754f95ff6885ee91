"""Another storage format for the state of a finished bundle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import edgeopt
from edgeopt.optimizers import AdamW, Lion, Lookahead, Optimizer
from edgeopt.quantization import FORMATS

Batch = list[np.ndarray[Any, Any]]


@pytest.fixture(scope="module")
def batch() -> Batch:
    x = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)
    return [x, np.tanh(x[:, ::-1]).copy()]


@pytest.fixture(scope="module")
def trained(batch: Batch) -> edgeopt.Bundle:
    """A bundle that has learned for a while with state in float32."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.Tanh(), torch.nn.Linear(96, 64))
    bundle = edgeopt.export(
        model, torch.from_numpy(batch[0]), loss="mse", optimizer=AdamW(1e-3), verbose=False, check=False
    )
    return after(bundle, batch, 10)


def after(bundle: edgeopt.Bundle, batch: Batch, steps: int) -> edgeopt.Bundle:
    session = bundle.session()
    for _ in range(steps):
        session.step(batch)
    return replace(bundle, state=session.state())


def losses(bundle: edgeopt.Bundle, batch: Batch, steps: int = 5) -> list[float]:
    session = bundle.session()
    return [float(session.step(batch)["loss"]) for _ in range(steps)]


@pytest.mark.parametrize("state", FORMATS)
def test_moments_go_into_every_format_and_back(trained, batch, state):
    there = trained.with_optimizer(AdamW(1e-3, state=state))
    assert "optimizer.step" in there.kept
    assert not there.dropped
    assert set(there.started) == set()
    if state not in ("int8_linear", "factored"):
        # What is lost is what the format loses.
        rtol = {"int4": 0.1, "nf4": 0.1, "fp8_e4m3": 0.02, "fp8_e5m2": 0.02}.get(state, 0.005)
        np.testing.assert_allclose(losses(there.bundle, batch), losses(trained, batch), rtol=rtol)
    back = there.bundle.with_optimizer(AdamW(1e-3))
    assert not back.started
    assert not back.dropped
    for name, value in trained.state.items():
        assert back.bundle.state[name].shape == value.shape
        if name.startswith("optimizer.exp") and not name.startswith("optimizer.exp_avg_sq"):
            largest = np.abs(value).max()
            np.testing.assert_allclose(back.bundle.state[name], value, atol=0.2 * largest)


def test_a_format_goes_on_bit_for_bit(trained, batch):
    narrow = after(trained.with_optimizer(AdamW(1e-3, state="int8_dynamic")).bundle, batch, 3)
    again = narrow.with_optimizer(Lookahead(AdamW(1e-3, state="int8_dynamic")))
    codes = "optimizer.exp_avg__int8_dynamic__codes.0.weight"
    assert again.kept[codes] == codes
    for name in [name for name in narrow.state if "exp_avg" in name]:
        np.testing.assert_array_equal(again.bundle.state[name], narrow.state[name])


def test_other_rules_take_over_what_they_know_from_any_format(trained, batch):
    narrow = trained.with_optimizer(AdamW(1e-3, state="int8")).bundle
    lion = narrow.with_optimizer(Lion(1e-4, state="int4"))
    assert lion.kept["optimizer.exp_avg__int4__codes.0.weight"] == "optimizer.exp_avg__int8__codes.0.weight"
    assert {name for name in lion.dropped if "weight" in name} == {
        f"optimizer.exp_avg_sq__int8__{part}.{layer}.weight" for part in ("codes", "absmax") for layer in (0, 2)
    }
    first, *_, last = losses(lion.bundle, batch)
    assert last < first


@pytest.mark.parametrize("optimizer", [AdamW(1e-3, state={"0.weight": "int8", "*": "int4"})], ids=["by name"])
def test_formats_by_name_are_taken_over(trained, batch, optimizer: Optimizer):
    there = trained.with_optimizer(optimizer)
    assert not there.started
    assert any("0.weight" in name and "int8" in name for name in there.kept)
    assert any("2.weight" in name and "int4" in name for name in there.kept)
    np.testing.assert_allclose(losses(there.bundle, batch), losses(trained, batch), rtol=0.1)
