"""What onnxruntime-training's own suite covers, operator by operator: models of one node, at the opsets it has there.

Here the tolerance is 1e-6 in float64 (1e-3 to 3e-1 there, in float32), second derivatives are checked too, float32 on
ONNX Runtime is compared with float64, and torch.autograd with both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx_ir as ir
import pytest
import torch

from edgeopt.autodiff import backward
from edgeopt.canonical import canonicalize
from edgeopt.testing import check_gradients
from edgeopt.testing.programs import Program, load
from edgeopt.tracing import Tracer


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `case` runs for each row of its module's CASES.

    A row has an operator, its opsets, its inputs (the shape of one that is random, an array, or None for one that is
    left out), its attributes, torch's function of the float64 inputs (or None), and, at will, words: "static" where all
    sizes must be known, "channels" where all must be but the first input's batch and places, "once" where the second
    derivative is checked elsewhere, "types" and the types of several outputs.
    """
    if "case" in metafunc.fixturenames:
        rows = metafunc.module.CASES
        metafunc.parametrize("case", rows, ids=[f"{row[0]}-{position}" for position, row in enumerate(rows)])


def _inputs(given: Sequence[Any]) -> list[Any]:
    random = np.random.default_rng(11)
    return [np.asarray(random.uniform(-2, 2, value)) if isinstance(value, tuple) else value for value in given]


def _shape(x: Any, name: str, named: str, *, is_first: bool) -> list[int | str]:
    """Dimensions that have names, and those that are known."""
    if named == "all":
        return [f"{name}_{axis}" for axis in range(x.ndim)]
    if named == "places" and is_first:
        return [size if axis == 1 else f"{name}_{axis}" for axis, size in enumerate(x.shape)]
    return list(x.shape)


def _model(
    operator: str, opset: int, inputs: Sequence[Any], attributes: Mapping[str, Any], types: Sequence[str], named: str
) -> onnx.ModelProto:
    """Arrays of float64 become inputs, others initializers."""
    domain, _, op_type = operator.rpartition("::")
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    outputs = [f"y{i}" for i in range(len(types))]
    node = onnx.helper.make_node(op_type, names, outputs, domain=domain, **attributes)
    declare = onnx.helper.make_tensor_value_info
    declared, stored = [], []
    for position, (name, value) in enumerate(zip(names, inputs, strict=True)):
        if value is not None and value.dtype == np.float64:
            shape = _shape(value, name, named, is_first=not position)
            declared.append(declare(name, onnx.TensorProto.FLOAT, shape))
        elif value is not None:
            stored.append(onnx.numpy_helper.from_array(value, name))
    results = [
        declare(name, onnx.TensorProto.DataType.Value(kind), None) for name, kind in zip(outputs, types, strict=True)
    ]
    graph = onnx.helper.make_graph([node], "row", declared, results, stored)
    opsets = [onnx.helper.make_opsetid("", opset), *([onnx.helper.make_opsetid(domain, 1)] if domain else [])]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _gradients(model: ir.Model, values: Mapping[str, Any], wrt: Sequence[str]) -> list[Any]:
    """Those of a random projection of the outputs, as stock ONNX Runtime computes them."""
    tracer = Tracer(model.graph)
    by_name = {value.name or "": value for value in model.graph.inputs}
    shapes = {name: output.shape for name, output in Program(model).run(dict(values)).items()}
    outputs = [value for value in model.graph.outputs if value.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE)]
    random = np.random.default_rng(3)
    seeds, cotangents = {}, {}
    for value in outputs:
        name = f"cotangent_{value.name}"
        dtype = tracer.wrap(value).dtype
        cotangents[name] = np.asarray(random.standard_normal(shapes[value.name or ""])).astype(dtype)
        seeds[value] = tracer.input(name, dtype, tracer.wrap(value).shape)
    found = backward(tracer, seeds, [by_name[name] for name in wrt])
    model.graph.outputs.clear()
    for position, gradient in enumerate(found):
        assert gradient is not None
        tracer.output(gradient, f"gradient_{position}")
    return list(Program(model).run({**values, **cotangents}).values())


def _torch_gradients(reference: Callable[..., Any], arrays: Sequence[Any]) -> list[Any]:
    tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
    results = reference(*tensors)
    random = np.random.default_rng(3)
    total = torch.zeros((), dtype=torch.float64)
    for result in results if isinstance(results, (tuple, list)) else [results]:
        total = total + (result * torch.tensor(random.standard_normal(tuple(result.shape)))).sum()
    total.backward()
    return [torch.zeros_like(x).numpy() if x.grad is None else x.grad.numpy() for x in tensors]


def _assert_close(results: Sequence[Any], expected: Sequence[Any], tolerance: float) -> None:
    for result, wanted in zip(results, expected, strict=True):
        assert result.shape == wanted.shape
        atol = tolerance * float(np.abs(wanted).max(initial=1e-6))
        np.testing.assert_allclose(result, wanted, rtol=tolerance, atol=atol)


@pytest.fixture
def check_case() -> Callable[[tuple[Any, ...]], None]:
    """Differences at each opset, second ones at the newest; float32, torch, and one input at a time against float64."""

    def check(row: tuple[Any, ...]) -> None:
        operator, opsets, given, attributes, reference, *words = row
        types = words[words.index("types") + 1] if "types" in words else ["FLOAT"]
        inputs = _inputs(given)
        values = {f"x{i}": x for i, x in enumerate(inputs) if x is not None and x.dtype == np.float64}

        def model(opset: int = opsets[-1], named: str = "none") -> onnx.ModelProto:
            return _model(operator, opset, inputs, attributes, types, named)

        for opset in opsets:
            check_gradients(model(opset), values, directions=2)
        if "once" not in words:
            check_gradients(model(), values, order=2, directions=1)

        exact = _gradients(*load(model(), values, {}), list(values))
        named = "none" if "static" in words else "places" if "channels" in words else "all"
        single = canonicalize(model(named=named))
        in_float32 = {name: x.astype(np.float32) for name, x in values.items()}
        _assert_close(_gradients(single, in_float32, list(values)), exact, 1e-3)
        if reference is not None:
            _assert_close(exact, _torch_gradients(reference, list(values.values())), 1e-6)
        for position, name in enumerate(values if len(values) > 1 else ()):
            _assert_close(_gradients(*load(model(), values, {}), [name]), [exact[position]], 1e-9)

    return check
