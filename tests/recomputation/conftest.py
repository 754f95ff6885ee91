"""A deep network with a training step of its own, and how much memory a graph needs at once."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import edgeopt.tracing as xp
from edgeopt.autodiff import backward
from edgeopt.lowering import lower
from edgeopt.recomputation import recompute
from edgeopt.tracing import Tracer, new_graph, new_model, op
from edgeopt.tracing.subgraphs import operands

DEPTH, WIDTH = 16, 8


class DeepNetwork:
    """Residual blocks of MatMul, Tanh, Relu and Dropout; loss and the gradients of all weights."""

    def __init__(self, what=None, *, join=False):
        tracer = Tracer(new_graph("deep"))
        x = tracer.input("x", np.float32, ("batch", WIDTH))
        seed, draws = (tracer.input(name, np.int64, ()) for name in ("seed", "draws"))
        weights = [tracer.input(f"w{i}", np.float32, (WIDTH, WIDTH)) for i in range(DEPTH)]
        hidden, early = x, x
        for i, weight in enumerate(weights):
            with tracer.scope(f"block.{i}"):
                inner = op.Relu(xp.tanh(op.MatMul(hidden, weight)) + 0.1) * 1.5
                inner = op.Dropout(inner, 0.25, True)
                early = inner if i == 0 else early
                hidden = hidden + inner
        if join:  # a connection over many blocks, as in a U-Net
            hidden = hidden * early
        loss = op.ReduceMean(hidden * hidden, keepdims=0)
        start = tracer.stop_gradient(xp.ones_like(loss))
        gradients = backward(tracer, {loss.value: start}, [weight.value for weight in weights])
        tracer.output(loss, "loss")
        for name, gradient in zip([weight.value.name for weight in weights], gradients, strict=True):
            assert gradient is not None
            tracer.output(gradient, f"gradient.{name}")
        lower(tracer, seed=seed, draws=draws)
        if what is not None:
            sources = [value for value in tracer.graph.inputs if value.name in ("x", "seed", "draws")]
            recompute(tracer, start.value, sources, what=what)
        self.graph = tracer.graph
        self.model = ir.serde.serialize_model(new_model(tracer.graph))


@pytest.fixture(scope="session")
def deep():
    return DeepNetwork


@pytest.fixture(scope="session")
def peak_bytes():
    """The most bytes of intermediate tensors that are alive at once when nodes run in a given order, at a batch size.

    Sizes come from running the graph with every tensor as an output.
    """

    def peak(graph, sizes, order):
        nodes = sorted(graph, key=lambda node: order[node.name])
        last = {value: i for i, node in enumerate(nodes) for value in operands(node) if value is not None}
        alive = highest = 0
        for i, node in enumerate(nodes):
            alive += sum(sizes[value.name] for value in node.outputs)
            highest = max(highest, alive)
            done = {value for value in operands(node) if value is not None and last[value] == i}
            alive -= sum(sizes.get(value.name, 0) for value in done if not value.is_graph_output())
        return highest

    return peak
