"""BatchNorms that do not train keep their running statistics, and training normalises by them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.losses import MSE
from edgeopt.optimizers import SGD, Group
from edgeopt.training import ForwardGraph, ForwardModel
from edgeopt.training.examining.statistics import hold_statistics


class Net(nn.Module):
    """A backbone and a head with a BatchNorm each, data normalised first, and a counter that is no statistic."""

    calls: torch.Tensor

    def __init__(self, affine: bool = True) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm1d(3, affine=False), nn.Linear(3, 5), nn.BatchNorm1d(5, affine=affine, momentum=0.3), nn.Tanh()
        )
        self.head = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
        self.register_buffer("calls", torch.zeros((), dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.calls += 1
        return self.head(self.body(x))


def export(module: nn.Module, **settings: Any) -> edgeopt.Bundle:
    example = torch.zeros(4, 3, dtype=torch.float64)
    return edgeopt.export(module, example, **{"loss": MSE(), "optimizer": SGD(0.1, momentum=0.9), **settings})


def frozen_parts(bundle: edgeopt.Bundle) -> list[str]:
    return [entry.text.rpartition(": ")[2] for entry in bundle.decisions if entry.kind == "frozen"]


def assert_trains_like(bundle: edgeopt.Bundle, reference: nn.Module) -> None:
    """Four steps of the bundle, and four of the module in the modes that it is in."""
    session, rng = bundle.session(), np.random.default_rng(1)
    trained = [parameter for parameter in reference.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, 0.1, momentum=0.9)
    for size in (4, 5, 6, 7):
        x, y = 2 * rng.standard_normal((size, 3)) + 1, rng.standard_normal((size, 2))
        loss = nn.functional.mse_loss(reference(torch.from_numpy(x)), torch.from_numpy(y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert session.step((x, y))["loss"] == pytest.approx(loss.item(), rel=1e-7)
    state = session.state()
    for name, value in reference.state_dict().items():
        # The operator's epsilon is a float32, whatever the tensors are.
        np.testing.assert_allclose(state[name], value.numpy(), rtol=1e-7, atol=1e-9, err_msg=name)


def net(affine: bool = True) -> Net:
    torch.manual_seed(0)
    return Net(affine).double()


def with_frozen_body(module: Net) -> Net:
    reference = copy.deepcopy(module).train()
    reference.body.eval().requires_grad_(False)
    return reference


@pytest.mark.parametrize("how", ["trainable", "requires_grad", "group"])
def test_frozen_layers_train_like_those_in_eval_mode(how: str) -> None:
    module = net()
    settings: dict[str, Any] = {}
    if how == "trainable":
        settings = {"trainable": "head.*"}
    elif how == "group":
        settings = {"optimizer": [Group("body.*", frozen=True), SGD(0.1, momentum=0.9)]}
    else:
        module.body.requires_grad_(False)
    bundle = export(module, **settings)
    assert frozen_parts(bundle) == ["body.0 and body.2."]
    assert_trains_like(bundle, with_frozen_body(module))


def test_one_without_parameters_goes_by_what_stands_in_front() -> None:
    module = net(affine=False)
    assert_trains_like(export(module, trainable="head.*"), with_frozen_body(module))
    bundle = export(module, trainable=["body.1.*", "head.0.*", "head.2.*"])
    # body.0 has nothing in front of it, and trains with the layer behind; head.1 has frozen parameters of its own.
    assert frozen_parts(bundle) == ["head.1."]


def test_where_all_trains_nothing_is_held() -> None:
    module = net()
    bundle = export(module)
    assert frozen_parts(bundle) == []
    assert_trains_like(bundle, copy.deepcopy(module).train())


def test_the_argument_says_otherwise() -> None:
    module = net()
    moving = copy.deepcopy(module).train()
    moving.body.requires_grad_(False)
    bundle = export(module, trainable="head.*", batch_norm="train")
    assert frozen_parts(bundle) == []
    assert_trains_like(bundle, moving)
    still = copy.deepcopy(module).train()
    for part in still.modules():
        part.train(not isinstance(part, nn.BatchNorm1d))
    bundle = export(module, batch_norm="frozen")
    assert frozen_parts(bundle) == ["body.0, body.2 and head.1."]
    assert_trains_like(bundle, still)


def test_other_words_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="batch_norm must be one of auto, file, frozen, train"):
        export(net(), batch_norm="eval")
    with pytest.raises(SignatureError, match='batch_norm="file" is for ONNX files'):
        export(net(), batch_norm="file")


class Functional(nn.Module):
    """Statistics under names of its own, and one layer used twice."""

    centre: torch.Tensor
    spread: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(3))
        self.register_buffer("centre", torch.zeros(3))
        self.register_buffer("spread", torch.ones(3))
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.batch_norm(x, self.centre, self.spread, self.scale, self.shift, self.training)
        return self.head(self.norm(torch.tanh(self.norm(x))))


def test_statistics_are_found_without_their_module_and_behind_their_first_use() -> None:
    module = Functional().double()
    bundle = export(module, trainable="head.*")
    assert frozen_parts(bundle) == ["centre with spread and norm."]
    reference = copy.deepcopy(module).eval().requires_grad_(False)
    reference.head.requires_grad_(True)
    assert_trains_like(bundle, reference)


def test_an_instance_norm_finds_its_statistics_by_its_module() -> None:
    proto = onnx.parser.parse_model("""
    <ir_version: 9, opset_import: ["" : 20]>
    model (float[n, 2, 3] x, float[2] gain, float[2] shift, float[2] m, float[2] v, float[3, 3] w)
        => (float[n, 2, 3] y, float[2] mean, float[2] var) {
        h = InstanceNormalization<epsilon = 0.001>(x, gain, shift)
        y = MatMul(h, w)
        axes = Constant<value_ints = [0, 2]>()
        mean = ReduceMean<keepdims = 0>(x, axes)
        var = Add(v, mean)
    }
    """)
    proto.graph.node[0].name = "i/instance_norm"
    model = ir.serde.deserialize_model(proto)
    model.graph.inputs[3].name, model.graph.inputs[4].name = "i.running_mean", "i.running_var"
    updated = ("i.running_mean", "i.running_var")
    graph = ForwardGraph(model, ("x",), ("y",), updated)
    parameters = {"gain": np.ones(2), "shift": np.zeros(2), "w": np.eye(3)}
    forward = ForwardModel(graph, graph, parameters, dict.fromkeys(updated, np.ones(2)))
    held = hold_statistics(forward, ["w"])
    assert held.train.updated_buffers == ()
    (norm,) = [node for node in held.train.model.graph if node.op_type == "BatchNormalization"]
    assert [value.name for value in norm.inputs if value] == ["x", "gain", "shift", *updated]
    assert norm.attributes.get_float("epsilon") == pytest.approx(0.001)
    assert len(list(held.train.model.graph)) == 2
    assert hold_statistics(forward, ["w", "gain"]) is forward
    assert "InstanceNormalization" in [node.op_type for node in model.graph]


FILE = """
<ir_version: 8, opset_import: ["" : 17]>
model (double[n, 3] x) => (double[n, 2] y)
<double[3] gain = {1, 2, 3}, double[3] shift = {0, 1, 2}, double[3] mean = {0.5, -0.5, 0}, double[3] var = {2, 3, 1},
 double[3, 2] kernel = {1, 2, 3, 4, 5, 6}> {
    h = BatchNormalization(x, gain, shift, mean, var)
    y = MatMul(h, kernel)
}
"""


@pytest.mark.parametrize(
    ("trainable", "batch_norm", "moves"),
    [
        ("kernel", "auto", False),
        ("kernel", "file", True),
        ("kernel", "train", True),
        ("shift", "auto", True),
        (None, "auto", True),
        (None, "frozen", False),
    ],
)
def test_files_follow_the_same_rule(trainable: str | None, batch_norm: Any, moves: bool) -> None:
    text = FILE.replace("h = BatchNormalization(", "h, m, v = BatchNormalization<training_mode = 1>(")
    bundle = edgeopt.export(
        onnx.parser.parse_model(text), loss=MSE(), optimizer=SGD(0.1), trainable=trainable, batch_norm=batch_norm
    )
    session = bundle.session()
    before, x = session.state(), np.random.default_rng(0).standard_normal((6, 3)) + 3
    y = np.zeros((6, 2))
    loss, evaluated = session.evaluate((x, y))["loss"], session.step((x, y))["loss"]
    assert (not np.array_equal(before["mean"], session.state()["mean"])) == moves
    assert (loss == pytest.approx(evaluated, rel=1e-12)) == (not moves)
