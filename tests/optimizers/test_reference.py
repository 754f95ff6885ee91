"""Every rule against goldens that its reference package wrote: 25 steps in float64, 200 in float32 on ONNX Runtime.

Tables and goldens are in the folder `reference`; none of the packages is needed here.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest

from edgeopt.optimizers import OPTIMIZERS, GroupArrays, LoRARITE

REFERENCE = Path(__file__).parent / "reference"


def table() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference_cases", REFERENCE / "cases.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLE = table()
ROWS = [(case, shape) for case in TABLE.CASES for shape in case.shapes]


def named(value):
    return value.name if hasattr(value, "name") else "x".join(map(str, value))


@pytest.fixture(scope="module")
def inputs() -> dict[str, np.ndarray]:
    with np.load(REFERENCE / "inputs.npz") as stored:
        return dict(stored)


@pytest.fixture(scope="module")
def goldens() -> dict[str, Any]:
    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(REFERENCE.glob("*.json"))]
    assert all(file["version"] for file in files)
    return {case: shapes for file in files for case, shapes in file["cases"].items()}


def drawn(inputs, case, shape, dtype, steps):
    key = TABLE.key(case, shape)
    return inputs[f"{key} start"].astype(dtype), inputs[f"{key} grads"][:steps].astype(dtype)


def check(param, golden, start, tolerance):
    expected = np.asarray(golden)
    assert np.abs(expected - start).max() > 10 * tolerance
    np.testing.assert_allclose(param, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("case", "shape"), ROWS, ids=named)
def test_25_steps_in_float64(case, shape, inputs, goldens, train):
    start, grads = drawn(inputs, case, shape, np.float64, 25)
    param, state = train(case.ours, numpy_namespace, start, lambda _, i: grads[i], 25)
    if case.view:
        numbers = {**case.ours.hyperparameters(), "lr": case.ours.schedule.hyperparameters()["lr"]}
        hyper = {name: np.asarray(value) for name, value in numbers.items()}
        param = case.ours.view(numpy_namespace, param, state, hyper, np.asarray(25))
    check(param, goldens[case.name][TABLE.key(case, shape)]["25"], start, case.float64)


@pytest.mark.parametrize(("case", "shape"), [row for row in ROWS if not row[0].view], ids=named)
def test_200_steps_in_float32_on_onnx_runtime(case, shape, inputs, goldens, train_onnx):
    start, grads = drawn(inputs, case, shape, np.float32, 200)
    param = train_onnx(case.ours, start, grads)
    check(param, goldens[case.name][TABLE.key(case, shape)]["200"], start, case.float32)


def test_every_rule_has_a_reference_or_a_reason():
    compared = {type(case.ours) for case in (*TABLE.CASES, TABLE.PAIR)}
    without = {name for name, rule in OPTIMIZERS.items() if rule not in compared}
    assert without == set(TABLE.NO_REFERENCE)
    assert all(TABLE.NO_REFERENCE.values())


def test_every_golden_belongs_to_a_row(inputs, goldens):
    cases = [*TABLE.CASES, TABLE.PAIR]
    assert sorted(goldens) == sorted(case.name for case in cases)
    keys = {TABLE.key(case, shape) for case in cases for shape in case.shapes}
    assert set(inputs) == {f"{key} {part}" for key in keys for part in ("start", "grads")}


def test_both_factors_of_an_adapter(inputs, goldens):
    rule, (shape,) = TABLE.PAIR.ours, TABLE.PAIR.shapes
    assert isinstance(rule, LoRARITE)
    start, grads = drawn(inputs, TABLE.PAIR, shape, np.float64, 25)

    def factors(x):
        return {"lora_A": x[:, :6], "lora_B": x[:, 6:].T}

    params = factors(start)
    states, shared = {name: rule.init(value) for name, value in params.items()}, rule.init_shared(params)
    hyper = {name: np.asarray(value) for name, value in {**rule.hyperparameters(), "lr": rule.lr}.items()}
    for step, grad in enumerate(grads, 1):
        group = GroupArrays(params, factors(grad), states, shared)
        params, states, shared = rule.update_all(numpy_namespace, group, hyper, np.asarray(step))
    joined = np.concatenate([params["lora_A"], params["lora_B"].T], axis=1)
    check(joined, goldens[TABLE.PAIR.name][TABLE.key(TABLE.PAIR, shape)]["25"], start, TABLE.PAIR.float64)
