from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime

from edgeopt.lowering import lower
from edgeopt.tracing import Tracer, new_graph, new_model, op


def test_sizes_of_activations_are_read_from_the_inputs():
    tracer = Tracer(new_graph("sizes"))
    x = tracer.input("x", np.float32, ("batch", 3, "width"))
    y = op.Relu(x)
    for name, array in {
        "shape": op.Shape(y),
        "middle": op.Shape(y, start=1, end=2),
        "last": op.Shape(y, start=-1),
        "size": op.Size(y),
        "none": op.Shape(y, start=2, end=1),
    }.items():
        tracer.output(array, name)
    lower(tracer)
    assert "Relu" not in [node.op_type for node in tracer.graph]
    model = ir.serde.serialize_model(new_model(tracer.graph)).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    results = session.run(None, {"x": np.zeros((5, 3, 7), np.float32)})
    assert [np.asarray(result).tolist() for result in results] == [[5, 3, 7], [3], [7], 105, []]


def test_a_dimension_that_no_input_has_is_asked_of_the_tensor():
    tracer = Tracer(new_graph("sizes"))
    x = tracer.input("x", np.float32, ("batch", 3))
    rows = op.NonZero(x)
    tracer.output(op.Shape(rows), "shape")
    lower(tracer)
    assert [node.op_type for node in tracer.graph] == ["NonZero", "Shape"]
