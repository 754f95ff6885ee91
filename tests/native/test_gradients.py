"""Kernels of gradients against the plain bodies of the same nodes, and what they say to nodes that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from edgeopt.autodiff import backward
from edgeopt.lowering import lower
from edgeopt.outlining import outline
from edgeopt.tracing import Array, Tracer, new_graph, new_model, op
from edgeopt.training.graphs.simplify import clean_up

Arrays = dict[str, Any]


def gradients(program: Callable[..., Array], arrays: Arrays, operations: set[str]) -> bytes:
    """The model of a program's gradients with respect to its floats; `operations` must be among its calls."""
    graph = new_graph("gradients")
    tracer = Tracer(graph, marks_operations=True)
    inputs = {name: tracer.input(name, array.dtype, array.shape) for name, array in arrays.items() if name != "g"}
    y = program(**inputs)
    seed = tracer.input("g", np.float32, y.shape)
    wrt = [array for array in inputs.values() if array.dtype == np.float32]
    for array, found in zip(wrt, backward(tracer, {y.value: seed}, [array.value for array in wrt]), strict=True):
        if found is not None:
            tracer.output(found, f"to_{array.value.name}")
    lower(tracer)
    functions = outline(graph, {})
    model = new_model(graph, list(functions.values()))
    clean_up(model)
    assert operations <= {name.partition("_")[0] for name in functions}
    content: bytes = ir.serde.serialize_model(model).SerializeToString()
    return content


def run(model: bytes, arrays: Arrays, library: str | None, threads: int = 1) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    if library is not None:
        options.register_custom_ops_library(library)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {i.name: arrays[i.name] for i in session.get_inputs()}))


def agree(program: Callable[..., Array], arrays: Arrays, library: str, *operations: str, scale: float = 1.0) -> None:
    graph = new_graph("shape")
    tracer = Tracer(graph)
    y = program(**{name: tracer.input(name, array.dtype, array.shape) for name, array in arrays.items()})
    g = np.random.default_rng(1).standard_normal([int(dim) for dim in y.shape if isinstance(dim, int)])
    arrays = {**arrays, "g": (g * scale).astype(np.float32)}
    model = gradients(program, arrays, set(operations))
    plain = run(model, arrays, None)
    for threads in (1, 2):
        for native, body in zip(run(model, arrays, library, threads), plain, strict=True):
            largest = np.abs(body).max(initial=0.0)
            np.testing.assert_allclose(native, body, rtol=1e-4, atol=3e-6 * max(float(largest), 1e-30))


def normal(*shape: int, scale: float = 1.0, shift: float = 0.0) -> Any:
    values = np.random.default_rng(list(shape)).standard_normal(shape) * scale + shift
    return values.astype(np.float32)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_convolutions(library: str, data: st.DataObject) -> None:
    rank = data.draw(st.sampled_from([1, 2]))
    group = data.draw(st.integers(1, 3))
    width = data.draw(st.sampled_from([1, 8, 9]))
    features = group * data.draw(st.integers(1, 20))
    sides = st.lists(st.integers(1, 3), min_size=rank, max_size=rank)
    kernel, strides, dilations = data.draw(sides), data.draw(sides), data.draw(sides)
    pads = [data.draw(st.integers(0, (k - 1) * d)) for k, d in [*zip(kernel, dilations, strict=True)] * 2]
    size = [data.draw(st.integers((k - 1) * d + 1, 12)) for k, d in zip(kernel, dilations, strict=True)]
    arrays = {"x": normal(2, group * width, *size), "w": normal(features, width, *kernel)}

    def program(x: Array, w: Array) -> Array:
        return op.Conv(x, w, strides=strides, dilations=dilations, pads=pads, group=group)

    agree(program, arrays, library, "ConvWeightGrad", "ConvInputGrad")


# Of two values for each channel the gradient is all but zero, and both results are rounding alone.
@pytest.mark.parametrize("shape", [(9, 3), (4, 5, 7), (8, 16, 3, 3), (2, 33, 9, 20)])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_batch_normalization(library: str, shape: tuple[int, ...], scale: float) -> None:
    channels = shape[1]
    arrays = {"x": normal(*shape, scale=scale, shift=scale), "scale": normal(channels), "bias": normal(channels)}

    def program(x: Array, scale: Array, bias: Array) -> Array:
        mean, variance = np.zeros(channels, np.float32), np.ones(channels, np.float32)
        y, *_ = x.tracer.emit("BatchNormalization", x, scale, bias, mean, variance, training_mode=1, outputs=3)
        return y

    agree(program, arrays, library, "BatchNormGrad", "BatchStatistics")


@pytest.mark.parametrize(("shape", "axis"), [((3, 5), -1), ((2, 7, 384), -1), ((4, 3, 5), 1), ((1, 4), -1)])
def test_layer_normalization(library: str, shape: tuple[int, ...], axis: int) -> None:
    inner = shape[axis % len(shape) :]
    arrays = {"x": normal(*shape, shift=2.0), "scale": normal(*inner), "bias": normal(*inner)}
    agree(lambda x, scale, bias: op.LayerNormalization(x, scale, bias, axis=axis), arrays, library, "LayerNormGrad")


@pytest.mark.parametrize("scale", [1e-20, 1.0, 30.0])
@pytest.mark.parametrize("size", [1, 15, 17, 40000])
def test_elementwise(library: str, size: int, scale: float) -> None:
    arrays = {"x": normal(size, scale=scale)}
    agree(lambda x: op.Gelu(x), arrays, library, "GeluGrad")
    agree(lambda x: op.Gelu(x, approximate="tanh"), arrays, library, "GeluGrad")
    agree(lambda x: op.Relu(x), arrays, library, "ClipGrad")
    agree(lambda x: op.Clip(x, np.float32(-0.5), np.float32(0.5)), arrays, library, "ClipGrad")


@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (2, 3, 130)])
def test_softmax(library: str, shape: tuple[int, ...]) -> None:
    agree(lambda x: op.Softmax(x), {"x": normal(*shape)}, library, "SoftmaxGrad")
    agree(lambda x: op.LogSoftmax(x), {"x": normal(*shape)}, library, "LogSoftmaxGrad")


@pytest.mark.parametrize(("shape", "axis"), [((7, 5), 0), ((2, 7, 300), 1), ((3, 7), 1)])
def test_gather(library: str, shape: tuple[int, ...], axis: int) -> None:
    indices = np.asarray([[0, 3, -1], [3, 3, 6]], np.int64)
    arrays = {"x": normal(*shape), "indices": indices}
    agree(lambda x, indices: op.Gather(x, indices, axis=axis), arrays, library, "GatherGrad")


@pytest.mark.parametrize("attributes", [{}, {"strides": [2, 2]}, {"pads": [1, 1, 1, 1], "strides": [2, 1]}])
@pytest.mark.parametrize("kernel", [[2, 2], [3, 2]])
def test_max_pool(library: str, kernel: list[int], attributes: Any) -> None:
    # Whole numbers, so that there are ties.
    arrays = {"x": np.round(normal(2, 3, 9, 8) * 2)}
    agree(lambda x: op.MaxPool(x, kernel_shape=kernel, **attributes), arrays, library, "MaxPoolGrad")


@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (5, 3, 4, 7), (6, 17, 9, 33)])
def test_recurrent(library: str, kind: str, direction: str, sizes: tuple[int, ...]) -> None:
    time, batch, features, hidden = sizes
    gates = 4 if kind == "LSTM" else 3
    arrays = {
        "x": normal(time, batch, features),
        "w": normal(1, gates * hidden, features, scale=0.5),
        "r": normal(1, gates * hidden, hidden, scale=0.3),
        "b": normal(1, 2 * gates * hidden),
        "h": normal(1, batch, hidden),
    }
    after = {"linear_before_reset": 1} if kind == "GRU" else {}

    def program(x: Array, w: Array, r: Array, b: Array, h: Array) -> Array:
        inputs = (x, w, r, b, None, h)
        return x.tracer.emit(kind, *inputs, outputs=1, hidden_size=hidden, direction=direction, **after)[0]

    agree(program, arrays, library, f"{kind}Forward", f"{kind}Backward")


FLOATS, INTS = TensorProto.FLOAT, TensorProto.INT64
WINDOW = {"kernel_shape": [3, 3], "strides": [1, 1], "dilations": [1, 1], "pads": [1, 1, 1, 1], "group": 1}
X, G = normal(2, 3, 5, 5), normal(2, 4, 5, 5)
HOSTILE: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("ConvWeightGrad", [X, G], {**WINDOW, "kernel_shape": [1 << 40, 3]}),
    ("ConvWeightGrad", [X, G], {**WINDOW, "kernel_shape": [-3, 3]}),
    ("ConvWeightGrad", [X, G], {**WINDOW, "strides": [0, 1]}),
    ("ConvWeightGrad", [X, G], {**WINDOW, "dilations": [1 << 62, 1]}),
    ("ConvWeightGrad", [X, G], {**WINDOW, "pads": [-(1 << 60), 1, 1, 1]}),
    ("ConvWeightGrad", [X, G], {**WINDOW, "group": 2}),
    ("ConvWeightGrad", [X, normal(2, 4, 9, 5)], WINDOW),
    ("ConvWeightGrad", [X, normal(1, 4, 5, 5)], WINDOW),
    ("ConvWeightGrad", [X[0], G], WINDOW),
    ("ConvInputGrad", [G, normal(4, 3, 3, 3)], {**WINDOW, "size": [1 << 40, 1 << 40]}),
    ("ConvInputGrad", [G, normal(4, 3, 2, 3)], {**WINDOW, "size": [5, 5]}),
    ("ConvInputGrad", [G, normal(4, 3, 3, 3)], {**WINDOW, "size": [-5, 5]}),
    ("BatchNormGrad", [X, X, normal(2), normal(1, 3, 1, 1), normal(1, 3, 1, 1)], {}),
    ("BatchNormGrad", [X, G, normal(3), normal(1, 3, 1, 1), normal(1, 3, 1, 1)], {}),
    ("LayerNormGrad", [X, X, normal(5)], {"axis": 9}),
    ("LayerNormGrad", [X, X, normal(4)], {"axis": 3}),
    ("SoftmaxGrad", [X, G], {}),
    ("GeluGrad", [X, X], {"approximate": "other"}),
    ("GatherGrad", [normal(2, 4), np.asarray([0, 9], np.int64)], {"axis": 0, "shape": [3, 4]}),
    ("GatherGrad", [normal(2, 4), np.asarray([0, -4], np.int64)], {"axis": 0, "shape": [3, 4]}),
    ("GatherGrad", [normal(2, 4), np.asarray([0, 1], np.int64)], {"axis": 0, "shape": [3, 5]}),
    ("GatherGrad", [normal(2, 4), np.asarray([0, 1], np.int64)], {"axis": 2, "shape": [3, 4]}),
    ("MaxPoolGrad", [G, X, G], WINDOW),
    ("LSTMForward", [normal(2, 3, 4), normal(1, 8, 4), normal(1, 8, 3)], {"given": [0, 1, 2]}),
    ("LSTMForward", [normal(2, 3, 4), normal(1, 8, 5), normal(1, 8, 2)], {"given": [0, 1, 2]}),
    ("LSTMForward", [normal(2, 3, 4), normal(1, 8, 4), normal(1, 8, 2)], {"given": [0, 1, 2, 3]}),
    ("GRUBackward", [normal(6, 2), normal(2, 3, 6), *[normal(3, 2)] * 4], {}),
    ("GeluGrad", [X, X], {"results": [7]}),
    ("GeluGrad", [X, X], {"results": [0, 1]}),
]


@pytest.mark.parametrize(("operation", "arrays", "attributes"), HOSTILE)
def test_what_does_not_fit_is_refused(library: str, operation: str, arrays: list[Any], attributes: Any) -> None:
    names = [f"input_{index}" for index in range(len(arrays))]
    node = helper.make_node(operation, names, ["y"], domain="edgeopt", **{"results": [0], **attributes})
    inputs = [
        helper.make_tensor_value_info(name, INTS if array.dtype == np.int64 else FLOATS, array.shape)
        for name, array in zip(names, arrays, strict=True)
    ]
    graph = helper.make_graph([node], "hostile", inputs, [helper.make_tensor_value_info("y", FLOATS, None)])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("edgeopt", 1)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    with pytest.raises(Exception, match=r"edgeopt\.|not enough memory"):
        run(model.SerializeToString(), dict(zip(names, arrays, strict=True)), library)
