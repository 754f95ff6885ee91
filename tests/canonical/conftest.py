"""Models before and after they are brought into canonical form, run by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest

from edgeopt.canonical import canonicalize
from edgeopt.testing import check_gradients


def run(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    taken = {value.name for value in session.get_inputs()}
    return dict(zip(names, session.run(names, {k: v for k, v in inputs.items() if k in taken}), strict=True))


def parsed(model: str | onnx.ModelProto) -> onnx.ModelProto:
    return onnx.parser.parse_model(model) if isinstance(model, str) else model


def random_inputs(model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Normal numbers for every float input and zeros for the others; dimensions with names take their size."""
    random = np.random.default_rng(5)
    initializers = {tensor.name for tensor in model.graph.initializer}
    values: dict[str, Any] = {}
    for value in model.graph.input:
        if value.name in initializers:
            continue
        kind = value.type.tensor_type
        shape = [sizes.get(dim.dim_param, dim.dim_value) for dim in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        values[value.name] = np.asarray(random.standard_normal(shape) if dtype.kind == "f" else np.zeros(shape), dtype)
    return values


@pytest.fixture
def one_node() -> Callable[..., tuple[onnx.ModelProto, dict[str, Any]]]:
    """A model of one node, and values for its inputs."""

    def make(
        operator: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any], outputs: int = 1
    ) -> tuple[onnx.ModelProto, dict[str, Any]]:
        """Inputs given by a shape are random, None is left out; the first dimension of `batched_...` has a name."""
        random = np.random.default_rng(3)
        domain, _, op_type = operator.rpartition("::")
        values = {
            name: np.asarray(random.standard_normal(value), np.float32) if isinstance(value, tuple) else value
            for name, value in inputs.items()
            if value is not None
        }
        declared = []
        for name, value in values.items():
            shape = ["batch", *value.shape[1:]] if name.startswith("batched") else list(value.shape)
            kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
            declared.append(onnx.helper.make_tensor_value_info(name, kind, shape))
        node = onnx.helper.make_node(
            op_type,
            [name if name in values else "" for name in inputs],
            [f"y{position}" for position in range(outputs)],
            name="node",
            domain=domain,
            **attributes,
        )
        results = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output]
        for result in results:
            result.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("com.microsoft", 1)]
        graph = onnx.helper.make_graph([node], "one_node", declared, results)
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9), values

    return make


@pytest.fixture
def same_results() -> Callable[..., list[str]]:
    """Check that a model's canonical form is valid and computes the same; returns its operators.

    The model is text or a proto; `sizes` are those of dimensions with names. With `order`, its gradients (up to that
    order) are compared with differences, too.
    """

    def check(
        model: str | onnx.ModelProto,
        inputs: Mapping[str, Any] | None = None,
        *,
        sizes: Mapping[str, int] | None = None,
        order: int = 0,
        reference: Callable[..., Sequence[Any]] | None = None,
        tolerance: float = 1e-5,
    ) -> list[str]:
        given = parsed(model)
        values = {**random_inputs(given, sizes or {}), **(inputs or {})}
        canonical = ir.serde.serialize_model(canonicalize(given))
        onnx.checker.check_model(canonical, full_check=True)
        results = run(canonical, values)
        expected = run(given, values) if reference is None else dict(zip(results, reference(**values), strict=True))
        assert list(results) == list(expected)
        for name, value in results.items():
            wanted = np.asarray(expected[name])
            assert (value.dtype, value.shape) == (wanted.dtype, wanted.shape)
            np.testing.assert_allclose(value, wanted, rtol=tolerance, atol=tolerance)
        for level in range(1, order + 1):
            check_gradients(given, values, order=level, directions=2)
        return [node.op_type for node in canonical.graph.node]

    return check
