"""A bundle made by hand: linear regression, `y = (x @ weight + bias) * scale`, trained by SGD with momentum.

It has one of everything the runtime must handle: trainable and frozen parameters, a buffer (a running mean of the
inputs), optimizer slots, counters, a seed, hyperparameters, accumulators, all five graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edgeopt_runtime import BundleContents, TrainingSession, pack_bundle
from edgeopt_runtime.manifest import (
    GraphInput,
    GraphOutput,
    Hyperparameter,
    InputSpec,
    Manifest,
    OutputSpec,
    Signature,
    TensorSpec,
)

Arrays = dict[str, NDArray]

FORWARD = """
MatMul x weight -> product
Add product bias -> shifted
Mul shifted scale -> y
"""
LOSS = """
Sub y target -> difference
Mul difference difference -> squared
ReduceSum squared -> loss_sum
Size difference -> count
Cast:float count -> loss_weight
Div loss_sum loss_weight -> loss
"""
# Gradients of the sum of squares; those of the mean are divided by the weight.
BACKWARD = """
Mul difference two -> twice
Mul twice scale -> cotangent
Transpose x -> x_transposed
MatMul x_transposed cotangent -> gradient.weight
ReduceSum cotangent first_axis -> gradient.bias
"""
BUFFERS = """
ReduceMean x first_axis -> batch_mean
Mul input_mean nine_tenths -> kept
Mul batch_mean one_tenth -> added
Add kept added -> next.input_mean
Add draws one -> next.draws
"""
# {0} is the parameter, {1} the gradient of the mean loss.
MOMENTUM = """
Mul optimizer.momentum.{0} factor -> kept.{0}
Add kept.{0} {1} -> next.optimizer.momentum.{0}
Mul next.optimizer.momentum.{0} rate -> change.{0}
Sub {0} change.{0} -> next.{0}
"""
UPDATE = """
Cast:float schedule.lr -> rate
Cast:float optimizer.momentum -> factor
Add step one -> next.step
Identity schedule.lr -> lr
"""
CONSTANTS = {
    "two": np.float32(2),
    "one": np.int64(1),
    "nine_tenths": np.float32(0.9),
    "one_tenth": np.float32(0.1),
    "first_axis": np.array([0], np.int64),
}


@dataclass(frozen=True)
class Reference:
    """The same training in numpy, float64."""

    state: Arrays
    lr: float = 0.1
    momentum: float = 0.9

    def loss(self, x: NDArray, target: NDArray) -> float:
        return float(np.mean(np.square(self.predict(x) - target)))

    def predict(self, x: NDArray) -> NDArray:
        return (x @ self.state["weight"] + self.state["bias"]) * self.state["scale"]

    def step(self, x: NDArray, target: NDArray) -> Reference:
        state = dict(self.state)
        cotangent = 2 * (self.predict(x) - target) * state["scale"] / target.size
        gradients = {"weight": x.T.astype(np.float64) @ cotangent, "bias": cotangent.sum(axis=0)}
        for name, gradient in gradients.items():
            slot = f"optimizer.momentum.{name}"
            state[slot] = self.momentum * state[slot] + gradient
            state[name] = state[name] - self.lr * state[slot]
        state["input_mean"] = 0.9 * state["input_mean"] + 0.1 * x.mean(axis=0)
        state["step"] = state["step"] + 1
        state["draws"] = state["draws"] + 1
        return Reference(state, self.lr, self.momentum)


def make_graph(manifest: Manifest, name: str, program: str) -> bytes:
    """One graph from lines of the form ``Operator[:type] inputs -> output``."""
    signature = manifest.signatures[name]
    specs = {
        spec.name: spec
        for group in (manifest.tensors, manifest.accumulators, manifest.inputs, manifest.outputs)
        for spec in group
    }
    types = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int64": TensorProto.INT64}

    def value_info(name: str, source: str) -> onnx.ValueInfoProto:
        if source in specs:
            return helper.make_tensor_value_info(name, types[specs[source].dtype], specs[source].shape)
        kind = TensorProto.DOUBLE if source in ("schedule.lr", "optimizer.momentum", "lr") else TensorProto.FLOAT
        return helper.make_tensor_value_info(name, kind, [])

    nodes = []
    for line in filter(None, program.splitlines()):
        left, _, output = line.partition(" -> ")
        operator, *inputs = left.split()
        operator, _, _ = operator.partition(":")
        settings: dict[str, dict[str, Any]] = {"Cast": {"to": TensorProto.FLOAT}, "Transpose": {"perm": [1, 0]}}
        attributes = settings.get(operator, {})
        if operator.startswith("Reduce"):
            attributes = {"keepdims": 0}
        nodes.append(helper.make_node(operator, inputs, [output], **attributes))
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        name,
        [value_info(port.name, port.name) for port in signature.inputs],
        [value_info(port.name, port.tensor or port.name) for port in signature.outputs],
        [numpy_helper.from_array(np.asarray(value), key) for key, value in CONSTANTS.items() if key in used],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def make_manifest() -> Manifest:
    learned = {"weight": (3, 2), "bias": (2,)}
    tensors = (
        *(TensorSpec(name, "parameter", "float32", shape, trainable=True) for name, shape in learned.items()),
        TensorSpec("scale", "parameter", "float32", (2,)),
        TensorSpec("input_mean", "buffer", "float32", (3,)),
        *(
            TensorSpec(f"optimizer.momentum.{name}", "optimizer", "float32", shape, parameter=name, slot="momentum")
            for name, shape in learned.items()
        ),
        TensorSpec("step", "counter", "int64", ()),
        TensorSpec("seed", "seed", "int64", ()),
        TensorSpec("draws", "counter", "int64", ()),
    )
    accumulators = (
        *(
            TensorSpec(f"accumulator.{name}", "accumulator", "float32", shape, parameter=name)
            for name, shape in learned.items()
        ),
        TensorSpec("accumulator.weight_sum", "accumulator", "float32", ()),
    )
    slots = [f"optimizer.momentum.{name}" for name in learned]
    gathered = [spec.name for spec in accumulators]
    rates = ["schedule.lr", "optimizer.momentum"]

    def signature(name: str, state: list[str], batch: list[str], hyper: list[str], outputs: list) -> Signature:
        ports = [("state", state), ("batch", batch), ("hyper", hyper)]
        return Signature(
            f"{name}.onnx",
            tuple(GraphInput(item, kind) for kind, items in ports for item in items),
            tuple(
                GraphOutput(f"next.{output}", "state", tensor=output) if isinstance(output, str) else output
                for output in outputs
            ),
        )

    loss, lr = GraphOutput("loss", "metric"), GraphOutput("lr", "metric")
    forward = ["weight", "bias", "scale"]
    return Manifest(
        opset=20,
        ir_version=9,
        minimum_onnxruntime="1.17.0",
        producer={"test": "by hand"},
        tensors=tensors,
        accumulators=accumulators,
        hyperparameters=(
            Hyperparameter("schedule.lr", "float64", 0.1, "learning rate"),
            Hyperparameter("optimizer.momentum", "float64", 0.9),
        ),
        inputs=(
            InputSpec("x", "model", "float32", ("batch", 3)),
            InputSpec("target", "loss", "float32", ("batch", 2)),
        ),
        outputs=(OutputSpec("y", "float32", ("batch", 2)),),
        signatures={
            "step": signature(
                "step",
                [*forward, "input_mean", *slots, "step", "draws"],
                ["x", "target"],
                rates,
                [*learned, "input_mean", *slots, "step", "draws", loss, lr],
            ),
            "accumulate": signature(
                "accumulate",
                [*forward, "input_mean", "draws", *gathered],
                ["x", "target"],
                [],
                ["input_mean", "draws", *gathered, loss],
            ),
            "apply": signature(
                "apply", [*learned, *slots, "step", *gathered], [], rates, [*learned, *slots, "step", lr]
            ),
            "evaluate": signature(
                "evaluate",
                forward,
                ["x", "target"],
                [],
                [GraphOutput("loss", "metric", weight="loss_weight"), GraphOutput("loss_weight", "weight")],
            ),
            "predict": signature("predict", forward, ["x"], [], [GraphOutput("y", "output")]),
        },
    )


def make_graphs(manifest: Manifest) -> dict[str, bytes]:
    gradients = "".join(f"Div gradient.{name} loss_weight -> mean.{name}\n" for name in ("weight", "bias"))
    gathered = "".join(
        f"Add accumulator.{name} gradient.{name} -> next.accumulator.{name}\n" for name in ("weight", "bias")
    )
    means = "".join(f"Div accumulator.{name} accumulator.weight_sum -> mean.{name}\n" for name in ("weight", "bias"))
    momentum = "".join(MOMENTUM.format(name, f"mean.{name}") for name in ("weight", "bias"))
    total = "Add accumulator.weight_sum loss_weight -> next.accumulator.weight_sum\n"
    programs = {
        "step": FORWARD + LOSS + BACKWARD + BUFFERS + gradients + UPDATE + momentum,
        "accumulate": FORWARD + LOSS + BACKWARD + BUFFERS + gathered + total,
        "apply": UPDATE + means + momentum,
        "evaluate": FORWARD + LOSS,
        "predict": FORWARD,
    }
    return {f"{name}.onnx": make_graph(manifest, name, program) for name, program in programs.items()}


def make_state(manifest: Manifest, seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    state = {}
    for spec in manifest.tensors:
        dtype = np.dtype(spec.dtype)
        drawn = rng.standard_normal(spec.shape) if spec.role == "parameter" else np.zeros(spec.shape)
        state[spec.name] = np.asarray(drawn).astype(dtype)
    return state


@pytest.fixture(scope="session")
def manifest() -> Manifest:
    return make_manifest()


@pytest.fixture(scope="session")
def contents(manifest: Manifest) -> BundleContents:
    return BundleContents(manifest, make_graphs(manifest), make_state(manifest))


@pytest.fixture(scope="session")
def packed(contents: BundleContents) -> bytes:
    return pack_bundle(contents.manifest, contents.graphs, contents.state)


@pytest.fixture
def bundle_path(packed: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "linear.edgeopt"
    path.write_bytes(packed)
    return path


@pytest.fixture
def session(packed: bytes) -> TrainingSession:
    return TrainingSession.load(packed, threads=1)


@pytest.fixture
def reference(contents: BundleContents) -> Reference:
    return Reference({name: array.astype(np.float64) for name, array in contents.state.items()})


@pytest.fixture(scope="session")
def make_batches() -> Callable[..., list[Arrays]]:
    """A function that draws batches of the given sizes."""

    def make(*sizes: int, seed: int = 1) -> list[Arrays]:
        rng = np.random.default_rng(seed)
        return [
            {
                "x": rng.standard_normal((size, 3)).astype(np.float32),
                "target": rng.standard_normal((size, 2)).astype(np.float32),
            }
            for size in sizes
        ]

    return make
