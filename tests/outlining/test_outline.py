"""What is marked while it is recorded becomes a call of a function; the results stay the same."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from edgeopt import tracing as xp
from edgeopt.outlining import outline
from edgeopt.tracing import Array, Tracer, new_graph, new_model
from edgeopt.tracing.fusing import all_of, fused
from edgeopt.training.graphs.simplify import clean_up


def _scaled(x: Array, g: Array) -> list[Array]:
    y = xp.exp(x) * g
    return [y * 2.0, xp.sum(y, axis=0)]


def _model(*shapes: tuple[int, ...], marks: bool = True, tear: bool = False) -> onnx.ModelProto:
    graph = new_graph("test")
    tracer = Tracer(graph, marks_operations=marks)
    for index, shape in enumerate(shapes):
        x = tracer.input(f"x{index}", np.float32, shape)
        g = tracer.input(f"g{index}", np.float32, shape)
        first, second = all_of(fused("Scaled", [x, g], _scaled, factor=index))
        if tear:
            inside = next(node for node in graph if node.op_type == "Exp")
            first = first + tracer.wrap(inside.outputs[0])
        tracer.output(first, f"first{index}")
        tracer.output(second, f"second{index}")
    functions = outline(graph, {})
    model = new_model(graph, list(functions.values()))
    clean_up(model)
    proto: onnx.ModelProto = ir.serde.serialize_model(model)
    onnx.checker.check_model(proto)
    return proto


def _run(model: onnx.ModelProto) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    feed = {i.name: random.standard_normal(i.shape).astype(np.float32) for i in session.get_inputs()}
    return list(session.run(None, feed))


def test_equal_stretches_share_a_function_and_other_shapes_have_their_own():
    model = _model((3, 4), (3, 4), (5, 2, 2))
    calls = [(node.op_type, node.attribute) for node in model.graph.node if node.domain == "edgeopt"]
    names = [name for name, _ in calls]
    assert names[0] == names[1] == "Scaled"
    assert {function.name for function in model.functions} == set(names)
    found = [{a.name: onnx.helper.get_attribute_value(a) for a in attributes} for _, attributes in calls]
    assert found == [{"factor": index, "results": [0, 1]} for index in range(3)]


def test_results_do_not_change():
    for shapes in ([(3, 4)], [(3, 4), (3, 4)], [(2, 3), (5, 2, 2)]):
        for marked, plain in zip(_run(_model(*shapes)), _run(_model(*shapes, marks=False)), strict=True):
            np.testing.assert_array_equal(marked, plain)


def test_a_torn_stretch_stays_as_it_is():
    model = _model((3, 4), tear=True)
    assert not model.functions
    assert {node.domain for node in model.graph.node} == {""}
    for torn, plain in zip(_run(model), _run(_model((3, 4), marks=False, tear=True)), strict=True):
        np.testing.assert_array_equal(torn, plain)


def test_the_same_operation_of_the_same_operands_is_recorded_once():
    tracer = Tracer(new_graph("test"), marks_operations=True)
    x = tracer.input("x", np.float32, (2,))
    first, second = (all_of(fused("Scaled", [x, x], _scaled))[0] for _ in range(2))
    assert first.value is second.value


def test_doubles_are_not_marked():
    tracer = Tracer(new_graph("test"), marks_operations=True)
    x = tracer.input("x", np.float64, (2,))
    fused("Scaled", [x, x], _scaled)
    assert {node.domain for node in tracer.graph} == {""}
