"""Which dimensions of a module's inputs are symbolic: what the examples, the module and the user say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import SignatureError, UnsupportedModelError
from edgeopt.losses import MSE
from edgeopt.optimizers import SGD
from edgeopt_exporters.pytorch import from_torch
from edgeopt_exporters.pytorch.inputs import bind_examples
from edgeopt_exporters.pytorch.sizes import resized

X = torch.randn(5, 6)
EDGES = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 0, 1]])


class Net(nn.Module):
    """Some function of inputs and a linear layer."""

    def __init__(self, function: Callable[..., torch.Tensor], *parts: nn.Module) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        return self.function(self, x, y)


def message(net: Net, x: torch.Tensor, edges: Any) -> torch.Tensor:
    return torch.zeros(x.shape[0], 3).index_add(0, edges[1], net.linear(x)[edges[0]])


def added(net: Net, x: torch.Tensor, y: Any) -> torch.Tensor:
    return net.linear(x) + y


def tied(net: Net, x: torch.Tensor, y: Any) -> torch.Tensor:
    return net.linear(x) + torch.ones(5, 1)


def branching(net: Net, x: torch.Tensor, y: Any) -> torch.Tensor:
    return net.linear(x) if x.shape[0] > 3 else 2 * net.linear(x)


def odd(net: Net, x: torch.Tensor, y: Any) -> torch.Tensor:
    return net.linear(x) if x.shape[0] % 2 else 2 * net.linear(x)


def in_pairs(net: Net, x: torch.Tensor, y: Any) -> torch.Tensor:
    return net.linear(x).view(-1, 2, 3).sum(1)


def recurrent(net: Net, x: torch.Tensor, state: Any) -> torch.Tensor:
    return net.parts[0](x, (state, state))[0]


def lstm() -> nn.Module:
    return nn.LSTM(6, 3, num_layers=2, batch_first=True)


FIXED_Y = ("fixed", "y")
Shapes = list[tuple[int | str | None, ...]]


@pytest.mark.parametrize(
    ("module", "example", "asked", "shapes", "decisions"),
    [
        (Net(message), (X, EDGES), {}, [("batch", 6), (2, 5)], [FIXED_Y]),
        (Net(message), (X, EDGES), {"y": {-1: "edges"}}, [("batch", 6), (2, "edges")], [FIXED_Y]),
        (Net(message), (X[:2], EDGES), {}, [("batch", 6), ("y_batch", 5)], [("symbolic", "y_batch")]),
        (Net(added), (X, torch.randn(5, 3)), {}, [("batch", 6), ("batch", 3)], []),
        (Net(added), (X, torch.randn(5, 3)), {"x": {0: "rows"}}, [("rows", 6), ("rows", 3)], []),
        (Net(added), (X, torch.randn(1, 3)), {}, [("batch", 6), (1, 3)], [FIXED_Y]),
        (Net(added), (X[:1], torch.randn(1, 3)), {}, [("batch", 6), ("batch", 3)], []),
        (Net(added), (X, torch.tensor(2.0)), {}, [("batch", 6), ()], []),
        (Net(added), (X, torch.randn(5, 3)), {"y": {0: "n"}}, [("batch", 6), ("batch", 3)], [("symbolic", "batch")]),
        (Net(tied), (X,), {}, [(5, 6)], [("fixed", "batch")]),
        (Net(branching), (X,), {}, [(5, 6)], [("fixed", "batch")]),
        (Net(odd), (X,), {}, [(5, 6)], [("fixed", "batch")]),
        (Net(in_pairs), (X[:4],), {}, [("batch", 6)], []),
        (
            Net(recurrent, lstm()),
            (torch.randn(2, 4, 6), torch.randn(2, 2, 3)),
            {"y": {1: "batch"}},
            [("batch", 4, 6), (2, "batch", 3)],
            [FIXED_Y],
        ),
    ],
    ids=[
        "another size", "asked", "the same by chance", "related", "another name", "broadcast", "all one", "no axes",
        "two names", "tied to a number", "branch", "parity", "pairs", "layers",
    ],
)  # fmt: skip
def test_what_is_symbolic(
    module: nn.Module, example: Any, asked: Any, shapes: Shapes, decisions: list[tuple[str, str]]
) -> None:
    forward, _ = from_torch(module, example, dynamic_shapes=asked)
    for graph in (forward.train, forward.evaluate):
        inputs = {value.name: value.shape for value in graph.model.graph.inputs}
        found = [tuple(getattr(size, "value", size) for size in inputs[name] or ()) for name in graph.inputs]
        assert found == shapes
    assert [(decision.kind, decision.subject) for decision in forward.decisions] == decisions


def test_another_number_of_nodes_trains_as_in_torch() -> None:
    """The batch was axis 0 of the edges too."""
    torch.manual_seed(0)
    module = Net(message)
    session = edgeopt.export(
        module, (X, EDGES), loss=MSE(), optimizer=SGD(lr=1.0), dynamic_shapes={"y": {1: "edges"}}, verbose=False
    ).session()
    x, edges, target = torch.randn(7, 6), torch.randint(0, 7, (2, 11)), torch.randn(7, 3)
    loss = nn.functional.mse_loss(module(x, edges), target)
    loss.backward()
    assert session.step((x.numpy(), edges.numpy(), target.numpy()))["loss"] == pytest.approx(loss.item(), rel=1e-5)
    weight, gradient = module.linear.weight.detach(), module.linear.weight.grad
    assert gradient is not None
    np.testing.assert_allclose(session.parameters()["linear.weight"], (weight - gradient).numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("function", "cause"),
    [(tied, r"dimension 'n' \(axis 0 of 'x'\).*ties it to 5"), (branching, r"dimension 'n'.*at size 2.*\(n > 3\)")],
)
def test_a_dimension_that_was_asked_for_is_refused_by_name(function: Any, cause: str) -> None:
    with pytest.raises(UnsupportedModelError, match=cause):
        from_torch(Net(function), X, dynamic_shapes={"x": {0: "n"}})


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"x": {2: "t"}}, r"axis 2 of 'x', whose shape is \(5, 6\)"),
        ({"x": {-3: "t"}}, "axis -3"),
        ({"x": {"1": "t"}}, "axis '1'"),
        ({"x": {1: 3}}, r"dynamic_shapes\['x'\]\[1\] is 3"),
        ({"x": ["t"]}, "has 1 entries, but 'x' has 2 axes"),
        ({"x": {1: "t", -1: "u"}}, "axis 1 twice"),
        ({"x": {1: "batch"}}, "sizes 5 and 6"),
        ({"x": {1: "t"}, "y": {1: "t"}}, "axis 1 of 'x' and axis 1 of 'y'"),
    ],
)
def test_dynamic_shapes_that_do_not_fit(asked: Any, why: str) -> None:
    with pytest.raises(SignatureError, match=why):
        bind_examples(Net(added), (X, torch.randn(5, 3)), True, asked)


def test_an_empty_example() -> None:
    with pytest.raises(SignatureError, match="'batch', is empty"):
        bind_examples(nn.Linear(6, 3), torch.zeros(0, 6), True, None)


def test_examples_of_another_size() -> None:
    x, y = torch.arange(10.0).reshape(5, 2), torch.arange(3)
    examples = bind_examples(Net(added), (x, y), True, {"x": {1: "width"}})
    longer = resized(examples, {"batch": 7, "width": 1})
    assert torch.equal(longer[0], torch.cat([x, x[:2]])[:, :1])
    assert torch.equal(longer[1], y), "its axis 0 is not the batch"
    assert torch.equal(resized(examples, {"batch": 2})[0], x[:2])
