"""What torch's exporter would get wrong by itself, and what users' modules look like."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import SignatureError, UnsupportedModelError
from edgeopt.losses import MSE, CrossEntropy
from edgeopt.optimizers import SGD


def export(module: nn.Module, example: Any, **settings: Any) -> edgeopt.Bundle:
    return edgeopt.export(module, example, **{"loss": MSE(), "optimizer": SGD(lr=0.1), **settings})


def operators(bundle: Any, graph: str) -> list[str]:
    return [node.op_type for node in onnx.load_from_string(bundle.graphs[graph]).graph.node]


def roles(bundle: edgeopt.Bundle) -> dict[str, str]:
    return {spec.name: spec.role for spec in bundle.manifest.tensors}


def stepped(parameter: torch.Tensor) -> np.ndarray:
    """A parameter after one step of SGD with learning rate 0.1."""
    assert parameter.grad is not None
    return (parameter - 0.1 * parameter.grad).detach().numpy()


class Normed(nn.Module):
    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3, **settings)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def test_names_are_the_modules_own() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    bundle = export(module, torch.randn(4, 3))
    found = roles(bundle)
    assert [name for name, role in found.items() if role == "parameter"] == [n for n, _ in module.named_parameters()]
    assert [name for name, role in found.items() if role == "buffer"] == [n for n, _ in module.named_buffers()]
    module.load_state_dict({name: torch.from_numpy(bundle.state[name]) for name in module.state_dict()})


def test_equal_initial_values_stay_separate_parameters() -> None:
    """Fresh norms all start at ones and zeros; exporters like to merge them into one tensor."""
    module = nn.Sequential(nn.LayerNorm(3), nn.LayerNorm(3))
    session = export(module, torch.randn(4, 3)).session()
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 4, 3)).astype(np.float32)
    session.step((x, y))
    nn.functional.mse_loss(module(torch.from_numpy(x)), torch.from_numpy(y)).backward()
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(session.parameters()[name], stepped(parameter), atol=1e-6)


def test_tied_parameters_are_one_tensor_with_the_sum_of_gradients() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
            self.outer.weight = self.inner.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.outer(torch.tanh(self.inner(x)))

    module = Tied()
    bundle = export(module, torch.randn(4, 3))
    assert [name for name, role in roles(bundle).items() if role == "parameter"] == ["inner.weight"]
    session = bundle.session()
    x, y = np.random.default_rng(0).standard_normal((2, 4, 3)).astype(np.float32)
    session.step((x, y))
    nn.functional.mse_loss(module(torch.from_numpy(x)), torch.from_numpy(y)).backward()
    np.testing.assert_allclose(session.parameters()["inner.weight"], stepped(module.inner.weight), atol=1e-6)


@pytest.mark.parametrize("momentum", [0.1, 0.37])
def test_batch_norm_moves_its_statistics_as_torch_does(momentum: float) -> None:
    """torch writes an inference-mode node, and ONNX would use the biased variance."""
    module = Normed(momentum=momentum)
    session = export(module, torch.randn(4, 3)).session()
    rng = np.random.default_rng(0)
    for size in (4, 2, 9):
        x = rng.normal(3.0, 2.0, (size, 3)).astype(np.float32)
        session.step((x, np.zeros_like(x)))
        module(torch.from_numpy(x))
    state = session.state()
    for name, buffer in module.named_buffers():
        np.testing.assert_allclose(state[name], buffer.numpy(), rtol=1e-6, err_msg=name)
    assert state["norm.num_batches_tracked"] == 3


def test_batch_norm_in_eval_mode_stays_frozen_where_the_user_put_it() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    module.train()
    module[1].eval()
    session = export(module, torch.randn(4, 3)).session()
    before = {name: value.copy() for name, value in session.state().items()}
    x = np.random.default_rng(0).normal(3.0, 2.0, (4, 3)).astype(np.float32)
    session.step((x, np.zeros_like(x)))
    after = session.state()
    for name in ("1.running_mean", "1.running_var", "1.num_batches_tracked"):
        np.testing.assert_array_equal(after[name], before[name])
    assert not np.array_equal(after["0.weight"], before["0.weight"])


@pytest.mark.parametrize("settings", [{"track_running_stats": False}, {"affine": False}])
def test_batch_norm_variants(settings: dict[str, Any]) -> None:
    linear = nn.Linear(3, 3)
    module = nn.Sequential(linear, Normed(**settings))
    session = export(module, torch.randn(4, 3)).session()
    x, y = np.random.default_rng(0).standard_normal((2, 5, 3)).astype(np.float32)
    loss = nn.functional.mse_loss(module(torch.from_numpy(x)), torch.from_numpy(y))
    assert session.step((x, y))["loss"] == pytest.approx(loss.item(), rel=1e-5)
    loss.backward()
    expected = stepped(linear.weight)
    np.testing.assert_allclose(session.parameters()["0.weight"], expected, atol=1e-5)


def test_any_buffer_that_forward_changes_is_state() -> None:
    class Counter(nn.Module):
        calls: torch.Tensor
        largest: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
            self.register_buffer("largest", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                self.calls.add_(1)
                self.largest.copy_(torch.maximum(self.largest, x.detach().abs().max()))
            return x * self.scale

    session = export(Counter(), torch.randn(4, 3)).session()
    for value in (1.0, 5.0, 2.0):
        x = np.full((2, 3), value, np.float32)
        session.step((x, x))
    assert session.state()["calls"] == 3
    assert session.state()["largest"] == 5.0


def test_the_module_is_left_as_it_was() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    module.eval()
    module[2].train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    export(module, torch.randn(4, 3))
    assert [part.training for part in module] == [False, False, True]
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_requires_grad_false_is_respected_unless_named() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    module[0].requires_grad_(False)
    trainable = {spec.name for spec in export(module, torch.randn(4, 3)).manifest.tensors if spec.trainable}
    assert trainable == {"1.weight", "1.bias"}
    named = export(module, torch.randn(4, 3), trainable=["0.*"])
    assert {spec.name for spec in named.manifest.tensors if spec.trainable} == {"0.weight", "0.bias"}


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, left: torch.Tensor, right: torch.Tensor, scale: float = 2.0) -> dict[str, torch.Tensor]:
        hidden = left + scale * right
        return {"hidden": hidden, "logits": self.linear(hidden)}


@pytest.mark.parametrize("as_mapping", [False, True])
def test_inputs_by_position_or_name_and_named_outputs(as_mapping: bool) -> None:
    left, right = torch.randn(4, 3), torch.randn(4, 3)
    example = {"right": right, "left": left} if as_mapping else (left, right)
    bundle = export(TwoInputs(), example, loss=CrossEntropy(), output="logits")
    assert [spec.name for spec in bundle.manifest.inputs] == ["left", "right", "target"]
    assert [spec.name for spec in bundle.manifest.outputs] == ["hidden", "logits"]
    session = bundle.session()
    outputs = session.predict({"left": left.numpy(), "right": right.numpy()})
    np.testing.assert_allclose(outputs["hidden"], (left + 2 * right).numpy(), rtol=1e-6)


def test_an_example_batch_of_one_does_not_freeze_the_batch_size() -> None:
    session = export(nn.Linear(3, 2), torch.randn(1, 3)).session()
    for size in (1, 7, 32):
        assert np.asarray(session.predict(np.zeros((size, 3), np.float32))).shape == (size, 2)


def test_a_static_batch_when_asked_for() -> None:
    bundle = export(nn.Linear(3, 2), torch.randn(4, 3), dynamic_batch=False)
    assert bundle.manifest.inputs[0].shape == (4, 3)


def test_batch_norm_and_dropout_do_not_reach_the_prediction_graph() -> None:
    bundle = export(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)), torch.randn(4, 3))
    assert "Dropout" not in operators(bundle, "predict.onnx")
    assert "Dropout" not in operators(bundle, "step.onnx"), "lowered to seeded random numbers"


def test_control_flow_on_values_is_refused_in_torchs_own_words() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) if x.sum() > 0 else x

    with pytest.raises(UnsupportedModelError, match=r"(?s)Branching.*data-dependent"):
        export(Branching(), torch.randn(4, 3))


@pytest.mark.parametrize(
    ("example", "message"),
    [
        ((torch.randn(4, 3), torch.randn(4, 3)), "do not fit Linear.forward"),
        ({"wrong": torch.randn(4, 3)}, "do not fit Linear.forward"),
        (3.0, "'input' is a float"),
    ],
)
def test_examples_that_do_not_fit(example: Any, message: str) -> None:
    with pytest.raises(SignatureError, match=message):
        export(nn.Linear(3, 2), example)


def test_unknown_names_and_kinds() -> None:
    with pytest.raises(SignatureError, match="no output 'logits'"):
        export(nn.Linear(3, 2), torch.randn(4, 3), output="logits")
    with pytest.raises(SignatureError, match="dynamic_shapes names"):
        export(nn.Linear(3, 2), torch.randn(4, 3), dynamic_shapes={"x": {1: "length"}})
    with pytest.raises(UnsupportedModelError, match="Weights alone are no model"):
        export({}, torch.randn(4, 3))  # type: ignore[arg-type]  # the mistake under test


class Attending(nn.Module):
    """Attention over (batch, heads, length, features), with a mask and grouped heads where asked for."""

    def __init__(self, grouped: bool = False) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(4, 16), nn.Linear(4, 8 if grouped else 16)
        self.grouped = grouped

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        query = self.query(x).unflatten(-1, (4, 4)).transpose(1, 2)
        key = self.key(x).unflatten(-1, (-1, 4)).transpose(1, 2)
        if mask is not None:
            mask = mask[:, None, None, :]
        kwargs = {"enable_gqa": True} if self.grouped else {}
        return nn.functional.scaled_dot_product_attention(query, key, key, attn_mask=mask, **kwargs)


@pytest.mark.parametrize("kind", ["plain", "boolean mask", "additive mask", "grouped heads"])
def test_attention_trains_as_in_torch(kind: str) -> None:
    torch.manual_seed(0)
    module = Attending(grouped=kind == "grouped heads")
    x = torch.randn(3, 5, 4)
    example: tuple[torch.Tensor, ...] = (x,)
    if "mask" in kind:
        visible = torch.rand(3, 5) > 0.4
        visible[1] = kind != "boolean mask"  # a sample of which nothing is visible: its output and gradient are zero
        example = (x, visible if kind == "boolean mask" else torch.where(visible, 0.0, -5.0))
    session = export(module, example).session()
    arrays = [tensor.numpy() for tensor in example]
    y = np.random.default_rng(0).standard_normal((3, 4, 5, 4)).astype(np.float32)
    loss = nn.functional.mse_loss(module(*example), torch.from_numpy(y))
    assert session.step((*arrays, y))["loss"] == pytest.approx(loss.item(), rel=1e-5)
    loss.backward()
    for name, parameter in module.named_parameters():
        expected = stepped(parameter)
        np.testing.assert_allclose(session.parameters()[name], expected, atol=1e-6, err_msg=name)


def test_batch_statistics_are_computed_once():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3))
    bundle = edgeopt.export(
        model,
        torch.zeros(2, 1, 8, 8),
        loss=edgeopt.losses.CrossEntropy(),
        optimizer=edgeopt.optimizers.SGD(lr=0.1),
    )
    model = onnx.ModelProto.FromString(bundle.graphs["step.onnx"])
    parts = [model.graph.node, *(function.node for function in model.functions)]
    assert [node.op_type for nodes in parts for node in nodes].count("ReduceMean") == 2  # the mean and the variance
    assert [node.op_type for node in model.graph.node].count("BatchStatistics") == 1
