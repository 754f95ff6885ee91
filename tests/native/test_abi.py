"""The places of ONNX Runtime's functions are those that `runtime/native/src/abi.h` says."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper


def test_attributes_shapes_and_threads_reach_the_kernels(library: str) -> None:
    attributes: dict[str, Any] = {
        "factor": 2.0,
        "offset": 3,
        "integers": [1, 2, 3],
        "numbers": [0.5, 0.25],
        "text": "hello",
    }
    node = helper.make_node("EdgeoptSelfTest", ["a", "b"], ["c", "d"], domain="edgeopt", **attributes)
    shapes: dict[str, Any] = {"a": ["n", 3], "b": [], "c": ["n", 3], "d": []}
    ports = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    graph = helper.make_graph([node], "self_test", [ports["a"], ports["b"]], [ports["c"], ports["d"]])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("edgeopt", 1)]
    model: onnx.ModelProto = helper.make_model(graph, ir_version=9, opset_imports=opsets)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 2
    settings.register_custom_ops_library(library)
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])

    a = np.arange(60000, dtype=np.float32).reshape(-1, 3)
    c, d = session.run(None, {"a": a, "b": np.array(7, np.float32)})

    np.testing.assert_array_equal(c, a * 2 + np.float32(14.75))
    assert d == 7 * 2 + 14.75
    assert d.shape == ()
