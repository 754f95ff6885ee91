"""Codes, states and trajectories beside those of bitsandbytes and torchao, which wrote the goldens."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest
import torch

from edgeopt import tracing
from edgeopt.compat.torch.narrow import keep, read_entry
from edgeopt.optimizers import OPTIMIZER, Optimizer, QuantizedState, initial_state
from edgeopt.optimizers.kept import by_slot
from edgeopt.quantization import FORMATS, Codebook
from tests.quantization.reference.cases import CASES, Case
from tests.quantization.reference.inputs import SAMPLE, STEPS, array, gradients, start

HERE = Path(__file__).parents[1] / "quantization" / "reference"

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def goldens() -> dict[str, Array]:
    with np.load(HERE / "bitsandbytes.npz") as ours, np.load(HERE / "torchao.npz") as others:
        return {**ours, **others}


@pytest.mark.parametrize("kind", ["normal", "wide"])
@pytest.mark.parametrize("sign", ["signed", "unsigned"])
def test_codes_of_8_bits_are_those_of_bitsandbytes(goldens, kind, sign):
    """Bit for bit those of its plain form, which looks for the nearest value.

    Its kernel for the CPU looks for a position in another way: of normally distributed values 0.4 % get a neighbour of
    the nearest code, and of values over five decades a quarter, by up to seven codes, among those near zero.
    """
    values = array(kind) if sign == "signed" else np.abs(array(kind))
    form = FORMATS["int8_dynamic"].signed if sign == "signed" else FORMATS["int8_dynamic"].unsigned
    assert isinstance(form, Codebook)
    parts = form.first(values)
    np.testing.assert_array_equal(parts["absmax"], goldens[f"{kind}.{sign}.absmax"])
    np.testing.assert_array_equal(parts["codes"], goldens[f"{kind}.{sign}.plain"])
    kernel = goldens[f"{kind}.{sign}.kernel"].astype(int)
    off = np.abs(kernel - parts["codes"].astype(int))
    assert np.mean(off > 0) <= (0.005 if kind == "normal" else 0.3)
    # And where it is off, ours is the nearer one.
    table, rows = np.asarray(form.table), (values.reshape(-1, 256) / parts["absmax"][:, None]).reshape(values.shape)
    assert np.all(np.abs(table[parts["codes"]] - rows) <= np.abs(table[kernel] - rows) + 1e-7)
    assert np.max(np.abs(table[parts["codes"]] - table[kernel])) <= (0.015 if kind == "normal" else 0.003)


@pytest.mark.parametrize("kind", ["normal", "wide"])
def test_normal_floats_of_4_bits_are_those_of_bitsandbytes(goldens, kind):
    form = FORMATS["nf4"].signed
    assert form is not None
    parts = form.first(array(kind))
    np.testing.assert_array_equal(parts["absmax"], goldens[f"{kind}.nf4.absmax"])
    np.testing.assert_array_equal(parts["codes"], goldens[f"{kind}.nf4"])


def entry(goldens: dict[str, Array], case: Case) -> dict[str, Any]:
    """The state of an optimizer after the first of the steps, as its `state_dict` holds it."""
    prefix = f"{case.reference}/state."
    own = {key.removeprefix(prefix): torch.tensor(each) for key, each in goldens.items() if key.startswith(prefix)}
    if "state1" in own:
        maps = [torch.tensor(form.table) for form in FORMATS["int8_dynamic"][:2] if isinstance(form, Codebook)]
        return {**own, "qmap1": maps[0], "qmap2": maps[1]}
    kind = {"4bit": "OptimState4bit", "8bit": "OptimState8bit", "tFp8": "OptimStateFp8", "WFp8": "OptimStateFp8"}[
        case.reference[-4:]
    ]
    found: dict[str, Any] = {"step": own["step"]}
    for slot in ("exp_avg", "exp_avg_sq"):
        codes, scale = own[f"{slot}.codes"], own[f"{slot}.scale"]
        block = 128 if kind == "OptimState4bit" else 256
        found[slot] = type(kind, (SimpleNamespace,), {})(codes=codes, scale=scale, block_size=block)
    return found


def taken(rule: Optimizer, entry: dict[str, Any], like: Array) -> dict[str, Array]:
    """That state as ours."""
    plain, parts = by_slot(initial_state(rule, like))
    values = read_entry(entry, {**plain, **parts})
    return {
        name: each for slot, (kept, _) in parts.items() for name, each in keep(slot, values[slot], kept, like).items()
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reference)
def test_a_state_goes_on_here_as_it_does_there(goldens, case):
    """Every eighth element of the parameter is known before and after, and the state before whole."""
    rule = OPTIMIZER.make(case.ours, case.settings)
    before, after = (goldens[f"{case.reference}/param.{step}"] for step in STEPS[:2])
    param = np.zeros_like(start()).reshape(-1)
    param[::SAMPLE] = before
    state = taken(rule, entry(goldens, case), start())
    hyper = {name: np.asarray(value) for name, value in {**rule.hyperparameters(), "lr": case.theirs["lr"]}.items()}
    moved, _ = rule.update(
        numpy_namespace, param.reshape(start().shape), gradients()[STEPS[0]], state, hyper, np.asarray(STEPS[1])
    )
    np.testing.assert_allclose(moved.reshape(-1)[::SAMPLE], after, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("case", [case for case in CASES if "AdamW" in case.reference], ids=lambda case: case.reference)
def test_trajectories_stay_together(goldens, case, train):
    """Over 200 steps the two stay as near as each stays to float32 (tier T5), or nearer."""
    rule = OPTIMIZER.make(case.ours, case.settings)
    assert isinstance(rule, QuantizedState)
    exact, _ = train(rule.inner, numpy_namespace, start(), lambda _, i: gradients()[i], STEPS[2])
    ours, _ = train(rule, numpy_namespace, start(), lambda _, i: gradients()[i], STEPS[2])
    theirs = goldens[f"{case.reference}/param.{STEPS[2]}"]
    allowed = {"4bit": 0.2, "Fp8": 0.05}.get(case.reference[-4:].removeprefix("W"), 0.02)

    def off(one: Array, other: Array) -> float:
        return float(np.sqrt(np.mean((one - other) ** 2) / np.mean(other**2)))

    sampled = [each.reshape(-1)[::SAMPLE] for each in (ours, exact)]
    assert off(sampled[0], sampled[1]) <= allowed
    assert off(theirs, sampled[1]) <= allowed
    assert off(sampled[0], theirs) <= allowed


def test_the_tracer_encodes_as_numpy_does(goldens):
    form = FORMATS["int8_dynamic"].signed
    assert form is not None
    one, other = (form.encode(xp, array("wide"))["codes"] for xp in (tracing, numpy_namespace))
    np.testing.assert_array_equal(one, other)
