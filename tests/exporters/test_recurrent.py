"""Modules with recurrent layers and with control flow, trained beside torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import UnsupportedModelError
from edgeopt.losses import CrossEntropy
from edgeopt.optimizers import SGD


class Classifier(nn.Module):
    """The mean of a recurrent layer's outputs, and its last states, to three classes."""

    def __init__(self, kind: str, **settings: Any) -> None:
        super().__init__()
        self.layer = getattr(nn, kind)(4, 5, **settings)
        width = 10 if settings.get("bidirectional") else 5
        self.head = nn.Linear(width + 5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, states = self.layer(x)
        last = states[0][-1] if isinstance(states, tuple) else states[-1]
        return self.head(torch.cat([y.mean(1 if self.layer.batch_first else 0), last], -1))


def export(module: nn.Module, example: torch.Tensor, **settings: Any) -> edgeopt.Bundle:
    return edgeopt.export(module, example, loss=CrossEntropy(), optimizer=SGD(lr=0.3), **settings)


def trained_alike(module: nn.Module, bundle: edgeopt.Bundle, batches: list[tuple[Any, Any]]) -> None:
    """Every loss, and every parameter after the last step, is torch's."""
    session, optimizer = bundle.session(), torch.optim.SGD(module.parameters(), lr=0.3)
    for x, target in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(target))
        loss.backward()
        optimizer.step()
        assert session.step((x, target))["loss"] == pytest.approx(loss.item(), rel=1e-5)
    parameters = session.parameters()
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(parameters[name], parameter.detach().numpy(), rtol=1e-4, atol=1e-6, err_msg=name)


def batches(count: int, *shapes: tuple[int, ...], batch_axis: int = 0) -> list[tuple[Any, Any]]:
    random = np.random.default_rng(0)
    found = []
    for i in range(count):
        shape = shapes[i % len(shapes)]
        x = random.standard_normal(shape).astype(np.float32)
        found.append((x, random.integers(0, 3, shape[batch_axis])))
    return found


def loaded(bundle: Any, graph: str) -> onnx.GraphProto:
    return onnx.load_from_string(bundle.graphs[f"{graph}.onnx"]).graph


def operators(bundle: edgeopt.Bundle) -> list[str]:
    """Those of the step, with the bodies of functions in their places."""
    step = bundle.graphs["step.onnx"]
    assert isinstance(step, bytes)
    model = onnx.load_from_string(step)
    bodies = {function.name: function.node for function in model.functions}

    def written(nodes: Any) -> list[str]:
        return [kind for node in nodes for kind in (written(bodies[node.op_type]) if node.domain else [node.op_type])]

    return written(model.graph.node)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("LSTM", {"bidirectional": True, "batch_first": True}),
        ("GRU", {"batch_first": True}),
        ("GRU", {"bidirectional": True, "num_layers": 2, "batch_first": True, "bias": False}),
        ("RNN", {"nonlinearity": "relu", "batch_first": True}),
    ],
    ids=str,
)
def test_recurrent_layers_train_as_in_torch_at_any_length(kind: str, settings: dict[str, Any]) -> None:
    torch.manual_seed(1)
    module = Classifier(kind, **settings)
    bundle = export(module, torch.randn(2, 6, 4), dynamic_shapes={"x": {1: "time"}})
    assert operators(bundle).count(kind) == settings.get("num_layers", 1)
    trained_alike(module, bundle, batches(20, (2, 6, 4), (3, 4, 4), (5, 1, 4)))


def test_time_first() -> None:
    torch.manual_seed(1)
    module = Classifier("LSTM")
    bundle = export(module, torch.randn(6, 2, 4), dynamic_batch=False, dynamic_shapes={"x": {1: "batch"}})
    trained_alike(module, bundle, batches(3, (6, 2, 4), (6, 5, 4), batch_axis=1))


def test_dropout_between_layers_is_on_in_training_only() -> None:
    module = Classifier("GRU", num_layers=2, dropout=0.5, batch_first=True)
    bundle = export(module, torch.randn(2, 3, 4))
    graphs = {name: loaded(bundle, name) for name in ("step", "evaluate")}
    inputs = {name: {value.name for value in graph.input} for name, graph in graphs.items()}
    assert "random.seed" in inputs["step"]
    assert "random.seed" not in inputs["evaluate"]
    session = bundle.session()
    x, target = batches(1, (64, 3, 4))[0]
    expected = nn.functional.cross_entropy(module.eval()(torch.from_numpy(x)), torch.from_numpy(target)).item()
    assert session.evaluate((x, target))["loss"] == pytest.approx(expected, rel=1e-5)
    assert session.step((x, target))["loss"] != pytest.approx(expected, rel=1e-5)


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch says how it computes the example
def test_projections_are_refused() -> None:
    class Projected(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(4, 5, proj_size=3, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)[0].mean(1)

    with pytest.raises(UnsupportedModelError, match="proj_size"):
        export(Projected(), torch.randn(2, 3, 4))


class Choosing(nn.Module):
    """Branches with parameters of their own and a common one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positive = lambda x: torch.tanh(self.first(x))  # noqa: E731  # torch.cond takes functions
        negative = lambda x: torch.sin(self.second(x)) + self.first(x)  # noqa: E731  # torch.cond takes functions
        return self.head(torch.cond(x.sum() > 0, positive, negative, (x,)))


def test_branches_train_as_in_torch() -> None:
    torch.manual_seed(1)
    module = Choosing()
    bundle = export(module, torch.randn(2, 4))
    assert operators(bundle).count("If") == 2
    data = [(x + (i % 2) - 0.5, target) for i, (x, target) in enumerate(batches(6, (2, 4), (3, 4)))]
    assert {bool(x.sum() > 0) for x, _ in data} == {True, False}
    trained_alike(module, bundle, data)
