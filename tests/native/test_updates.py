"""Updates with native kernels equal those of the plain graph, for every rule that is a function of its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from edgeopt.optimizers import OPTIMIZERS, Measurement, Optimizer, as_groups
from edgeopt.training.graphs.builder import GraphBuilder
from edgeopt.training.updating.groups import resolve
from edgeopt.training.updating.state import initial_state
from edgeopt.training.updating.update import update_groups

Arrays = dict[str, np.ndarray[Any, Any]]

# Nothing, one, odd, joined and alone, unaligned in the joined vector.
SHAPES = [(), (1,), (7,), (3, 5), (1, 1, 3, 3), (129,), (33, 31), (150, 121)]

EXTREMES = np.array(
    [0.0, -0.0, 1e-45, -1e-40, 1e-38, 1e38, -3e38, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-8, 1e8], np.float32
)


def update_of(rule: Optimizer, params: Arrays) -> bytes:
    """A graph of the update alone, whose gradients are inputs."""
    groups = resolve(as_groups(rule), params)
    buffers = {f"gradient.{name}": value for name, value in params.items()}
    state = initial_state(params, buffers, groups, seed=0)
    builder = GraphBuilder("step", state)
    update_groups(builder, groups, {name: builder.state(f"gradient.{name}") for name in params}, {})
    return builder.finish().model


def run(graph: bytes, feed: Arrays, library: str | None, threads: int = 2) -> Arrays:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.log_severity_level = 4
    if library is not None:
        settings.register_custom_ops_library(library)
    session = onnxruntime.InferenceSession(graph, settings, providers=["CPUExecutionProvider"])
    read = {value.name for value in session.get_inputs()}
    results = session.run(None, {name: value for name, value in feed.items() if name in read})
    return dict(zip((value.name for value in session.get_outputs()), results, strict=True))


def feed_of(graph: bytes, rule: Optimizer, rng: np.random.Generator, numbers: np.ndarray[Any, Any] | None) -> Arrays:
    """Values for the inputs: small ones, or drawn from some numbers."""
    hyper = {**rule.schedule.hyperparameters(), **rule.hyperparameters()}
    feed: Arrays = {}
    for value in onnx.load_from_string(graph).graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        kind = value.type.tensor_type.elem_type
        if kind == onnx.TensorProto.DOUBLE:
            feed[value.name] = np.asarray(hyper.get(value.name.rpartition(".")[2], 0.5))
        elif kind == onnx.TensorProto.FLOAT:
            drawn = rng.normal(size=shape) * 0.1 if numbers is None else rng.choice(numbers, size=shape)
            signed = "gradient" in value.name or value.name.startswith("p")
            feed[value.name] = np.asarray(drawn if signed else np.abs(drawn), np.float32)
        elif kind == onnx.TensorProto.INT64:
            feed[value.name] = np.full(shape, 3, np.int64)
        else:
            pytest.skip(f"the state holds tensors of ONNX's type {kind}")
    return feed


def extremes() -> np.ndarray[Any, Any]:
    """Those that ONNX Runtime itself treats as IEEE 754 says: to 1.17 the root of infinity is NaN."""
    graph = helper.make_graph(
        [helper.make_node("Sqrt", ["x"], ["y"])],
        "root",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [64])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [64])],
    )
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 20)])
    roots = run(model.SerializeToString(), {"x": np.full(64, np.inf, np.float32)}, None)["y"]
    squares_are_finite = ~(np.abs(EXTREMES) > 1e18)
    return EXTREMES if np.isposinf(roots).all() else EXTREMES[squares_are_finite]


def usable(name: str) -> Optimizer:
    rule = OPTIMIZERS[name]()
    param = np.ones((3, 5), np.float32)
    needs = {**rule.ingredients(param), **rule.shared_ingredients({"": param})}
    if any(isinstance(need, Measurement) for need in needs.values()):
        pytest.skip("the rule asks for more than gradients, which a graph of the update alone has not")
    return rule


def names() -> list[str]:
    return sorted(OPTIMIZERS)


@pytest.mark.parametrize("name", names())
def test_the_update_is_the_plain_one(library: str, name: str) -> None:
    rule = usable(name)
    rng = np.random.default_rng(3)
    params = {f"p{place}": rng.normal(size=shape).astype(np.float32) for place, shape in enumerate(SHAPES)}
    graph = update_of(rule, params)
    feed = feed_of(graph, rule, rng, None)

    plain, native = run(graph, feed, None), run(graph, feed, library)

    for key, value in plain.items():
        # What is summed in another order, of terms that cancel, is as exact as the largest of them.
        largest = float(np.max(np.abs(value), initial=0.0))
        np.testing.assert_allclose(native[key], value, rtol=2e-5, atol=1e-7 + 1e-6 * largest, err_msg=f"{name}: {key}")


@pytest.mark.parametrize("name", ["adamw", "sgd", "lion", "rmsprop", "adagrad", "rprop", "nadam"])
def test_extreme_numbers_come_out_as_in_the_plain_update(library: str, name: str) -> None:
    rule = OPTIMIZERS[name]()
    rng = np.random.default_rng(4)
    params: Mapping[str, Any] = {"p0": np.zeros((61, 67), np.float32), "p1": np.zeros(300, np.float32)}
    graph = update_of(rule, {**params, "p2": np.zeros((150, 121), np.float32)})
    feed = feed_of(graph, rule, rng, extremes())

    plain, native = run(graph, feed, None), run(graph, feed, library)

    for key, value in plain.items():
        # ONNX Runtime 1.17 does not round roots exactly; with the newest these are equal to the last bits.
        np.testing.assert_allclose(native[key], value, rtol=5e-6, atol=1e-44, err_msg=f"{name}: {key}")


def test_the_number_of_threads_changes_no_bit(library: str) -> None:
    rng = np.random.default_rng(5)
    rule = OPTIMIZERS["lamb"]()
    graph = update_of(rule, {"p0": rng.normal(size=(700, 300)).astype(np.float32)})
    feed = feed_of(graph, rule, rng, None)
    one, two = run(graph, feed, library, threads=1), run(graph, feed, library, threads=2)
    for key, value in one.items():
        np.testing.assert_array_equal(two[key], value)
