from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime

from edgeopt.lowering import lower
from edgeopt.tracing import Tracer, new_graph, new_model, op
from edgeopt.tracing.subgraphs import all_nodes


def test_an_output_beside_one_that_is_read_is_read_too():
    tracer = Tracer(new_graph("top"))
    x = tracer.input("x", np.float32, ("n", 5))
    values, _ = tracer.emit("TopK", x, [2], outputs=2)
    tracer.output(values * 2.0, "doubled")
    _, indices = tracer.emit("TopK", x, [3], outputs=2)
    tracer.output(indices, "indices")
    lower(tracer)
    for node in all_nodes(tracer.graph):
        assert all(value.uses() or value.is_graph_output() for value in node.outputs), node
    model = ir.serde.serialize_model(new_model(tracer.graph)).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    data = np.array([[3, 1, 4, 1.5, 9], [2, 6, 5, 3.5, 8]], np.float32)
    for rows in (data, data[:1], data[:0]):
        doubled, found = session.run(["doubled", "indices"], {"x": rows})
        np.testing.assert_array_equal(doubled, 2 * -np.sort(-rows)[:, :2])
        np.testing.assert_array_equal(found, np.argsort(-rows)[:, :3])


def test_what_is_read_throughout_stays_as_it_is():
    tracer = Tracer(new_graph("top"))
    x = tracer.input("x", np.float32, (4,))
    for name, array in zip(("values", "indices"), op.TopK(x, [2], outputs=2), strict=True):
        tracer.output(array, name)
    lower(tracer)
    assert [node.op_type for node in tracer.graph if node.op_type != "Constant"] == ["TopK"]


def test_a_declared_size_that_does_not_hold_does_no_harm():
    tracer = Tracer(new_graph("top"))
    x, count = tracer.input("x", np.float32, ("n",)), tracer.input("count", np.int64, (1,))
    values, _ = tracer.emit("TopK", x, count, outputs=2)
    tracer.output(values.with_shape((2,)) * 2.0, "doubled")
    lower(tracer)
    model = ir.serde.serialize_model(new_model(tracer.graph)).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    [doubled] = session.run(None, {"x": np.array([1, 3, 2], np.float32), "count": np.array([3])})
    assert doubled.tolist() == [6, 4, 2]
