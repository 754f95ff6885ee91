"""The node tests that onnx ships, as cases for gradients, and what became of each of them."""

from __future__ import annotations

import collections
import functools
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.backend.test.case.node
import onnx.numpy_helper
import pytest

_FLOATS = {
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.DOUBLE,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
}
# Operands that are taken as they are, whatever their schema says: regions, as in torchvision, and scales.
_TAKEN_AS_THEY_ARE = {"RoiAlign": ("rois",), "Upsample": ("scales",)}
_KEPT = onnx.defs.OpSchema.DifferentiationCategory.NonDifferentiable


class Case(NamedTuple):
    """A model of one operator, or of the function that says it with others, and its inputs with a derivative."""

    operator: str
    name: str
    model: onnx.ModelProto
    inputs: Mapping[str, Any]

    @property
    def is_differentiable(self) -> bool:
        """Whether numbers go in and come out."""
        elements = any(np.size(value) for value in self.inputs.values())
        return elements and any(map(_is_float, self.model.graph.output))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `node_cases` runs for each operator that onnx has cases for."""
    if "node_cases" in metafunc.fixturenames:
        operators = _cases_by_operator()
        metafunc.parametrize("node_cases", list(operators.values()), ids=list(operators))


@functools.cache
def _cases_by_operator() -> dict[str, list[Case]]:
    # The cases draw from numpy's global generator, and some compute infinities on purpose.
    state = np.random.get_state()
    np.random.seed(0)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        shipped = onnx.backend.test.case.node.collect_testcases(None)
    np.random.set_state(state)
    operators: dict[str, str] = {}
    for case in shipped:
        if case.model is not None and len(case.model.graph.node) == 1:
            node = case.model.graph.node[0]
            operators[case.name] = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    found: dict[str, list[Case]] = {}
    for case in shipped:
        if case.model is None or not case.data_sets:
            continue
        # The body of an operator that is a function comes as a case of its own.
        operator = operators.get(case.name.split("_expanded")[0], operators.get(case.name, "several"))
        found.setdefault(operator, []).append(_read(operator, case))
    return dict(sorted(found.items()))


def _read(operator: str, shipped: Any) -> Case:
    """Inputs without a derivative (indices, shapes, scales of a Resize) become constants of the model."""
    model = onnx.ModelProto()
    model.CopyFrom(shipped.model)
    given, _ = shipped.data_sets[0]
    kept = _without_derivative(model)
    declared = list(model.graph.input)
    del model.graph.input[:]
    inputs = {}
    for value, data in zip(declared, given, strict=False):
        if not value.type.HasField("tensor_type"):
            model.graph.input.append(value)
        elif _is_float(value) and (value.name not in kept or not np.isfinite(_array(data)).all()):
            model.graph.input.append(value)
            inputs[value.name] = _array(data)
        else:
            model.graph.initializer.append(_tensor(data, value.name))
    return Case(operator, shipped.name, model, inputs)


def _is_float(value: onnx.ValueInfoProto) -> bool:
    return value.type.HasField("tensor_type") and value.type.tensor_type.elem_type in _FLOATS


def _array(data: Any) -> Any:
    return onnx.numpy_helper.to_array(data) if isinstance(data, onnx.TensorProto) else np.asarray(data)


def _tensor(data: Any, name: str) -> onnx.TensorProto:
    if not isinstance(data, onnx.TensorProto):
        return onnx.numpy_helper.from_array(np.asarray(data), name)
    tensor = onnx.TensorProto()
    tensor.CopyFrom(data)
    tensor.name = name
    return tensor


def _without_derivative(model: onnx.ModelProto) -> set[str]:
    """The inputs that an operator's schema calls so."""
    names = set()
    versions = {opset.domain: opset.version for opset in model.opset_import}
    for node in model.graph.node:
        if not onnx.defs.has(node.op_type, node.domain):
            continue
        schema = onnx.defs.get_schema(node.op_type, versions.get(node.domain, 1), node.domain)
        for name, parameter in zip(node.input, schema.inputs, strict=False):
            if parameter.differentiation_category == _KEPT or parameter.name in _TAKEN_AS_THEY_ARE.get(
                node.op_type, ()
            ):
                names.add(name)
    return names


class Tally:
    """What became of the cases, by outcome."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.refusals: dict[str, collections.Counter[str]] = {}

    def add(self, outcome: str, operator: str = "", reason: str = "") -> None:
        """Count a case, and where it was refused say which operator and why."""
        self.counts[outcome] += 1
        if reason:
            self.refusals.setdefault(reason, collections.Counter())[operator] += 1


_TALLY = Tally()


@pytest.fixture(scope="session")
def tally() -> Tally:
    return _TALLY


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many of onnx's cases ran, and how many were refused and why."""
    if not _TALLY.counts:
        return
    terminalreporter.section("gradients of the node tests that onnx ships")
    terminalreporter.write_line(f"{sum(_TALLY.counts.values())} cases")
    for outcome, count in _TALLY.counts.most_common():
        terminalreporter.write_line(f"{count:6d} {outcome}")
    for reason, operators in sorted(_TALLY.refusals.items()):
        named = ", ".join(f"{operator} ({count})" for operator, count in sorted(operators.items()))
        terminalreporter.write_line(f"       {named}: {reason}")
