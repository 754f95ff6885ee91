from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgeopt.tracing import Tracer, new_graph
from edgeopt.tracing.spelling import spell_alike


def node_of(op_type, attributes):
    graph = new_graph("one")
    x = Tracer(graph).input("x", np.float32, (2, 3))
    inputs = [] if op_type == "Constant" else [x.value]
    node = ir.Node("", op_type, inputs, ir.convenience.convert_attributes(attributes))
    graph.append(node)
    spell_alike(graph)
    return node


def test_attributes_that_say_what_holds_anyway_are_dropped():
    assert not node_of("ReduceMean", {"keepdims": 1, "noop_with_empty_axes": 0}).attributes
    assert list(node_of("ReduceMean", {"keepdims": 0}).attributes) == ["keepdims"]
    assert list(node_of("Gemm", {"alpha": 1.0, "beta": 0.5}).attributes) == ["beta"]
    assert list(node_of("Conv", {"strides": [1, 1]}).attributes) == ["strides"]


def test_constants_are_tensors():
    for name, value, dtype in [
        ("value_int", 3, np.int64),
        ("value_ints", [1, 2], np.int64),
        ("value_float", 0.5, np.float32),
        ("value_floats", [0.5, 1.5], np.float32),
    ]:
        node = node_of("Constant", {name: value})
        assert list(node.attributes) == ["value"]
        array = node.attributes["value"].as_tensor().numpy()
        assert array.dtype == dtype
        np.testing.assert_array_equal(array, np.asarray(value, dtype))
