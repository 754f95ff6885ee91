"""Training steps that meet points without a derivative, or batches that cannot be trained on."""

from __future__ import annotations

import copy

import numpy as np
import onnx.helper
import onnx.numpy_helper
import onnx.parser
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import UnsupportedModelError
from edgeopt_runtime.errors import NonFiniteLossError


def test_a_sample_of_nothing_but_padding_trains_as_in_torch() -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

        def forward(self, tokens: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
            return self.layer(tokens, src_key_padding_mask=padding)

    torch.manual_seed(0)
    net, tokens = Encoder(), torch.randn(3, 4, 8)
    padding = torch.zeros(3, 4, dtype=torch.bool)
    padding[1, 2:], padding[2] = True, True
    reference = copy.deepcopy(net).train()
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.05)
    bundle = edgeopt.export(
        net, (tokens, padding), loss=edgeopt.losses.MSE(), optimizer=edgeopt.optimizers.SGD(lr=0.05)
    )
    session = bundle.session()
    for _ in range(3):
        target = torch.randn(3, 4, 8)
        loss = nn.functional.mse_loss(reference(tokens, padding), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mine = session.step((tokens.numpy(), padding.numpy(), target.numpy()))["loss"]
        assert mine == pytest.approx(loss.item(), rel=1e-5)
    for name, parameter in reference.named_parameters():
        np.testing.assert_allclose(session.parameters()[name], parameter.detach().numpy(), rtol=1e-4, atol=1e-6)


def small(*shape: int) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(*shape)


def test_one_value_for_each_channel_is_not_trained_on() -> None:
    net, x = small(4, 6)
    bundle = edgeopt.export(net, x, loss=edgeopt.losses.MSE(), optimizer=edgeopt.optimizers.SGD(lr=0.1))
    one = (np.ones((1, 6), np.float32), np.zeros((1, 2), np.float32))
    session = bundle.session()
    before = {name: np.array(array) for name, array in session.state().items()}
    assert np.isfinite(session.evaluate(one)["loss"])
    with pytest.raises(NonFiniteLossError):
        session.step(one)
    skipping = bundle.session(on_nonfinite="skip")
    assert skipping.step(one)["skipped"] == 1.0
    for state in (session.state(), skipping.state()):
        for name, array in state.items():
            np.testing.assert_array_equal(array, before[name])
    # Two values can be told apart.
    assert np.isfinite(session.step((x[:2].numpy(), np.zeros((2, 2), np.float32)))["loss"])


def test_a_batch_that_can_only_be_one_is_refused() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 20]>
        g (float[1, 3] x) => (float[1, 3] y)
        <float[3] scale = {1, 1, 1}, float[3] bias = {0, 0, 0}, float[3] mean = {0, 0, 0}, float[3] var = {1, 1, 1}>
        { y = BatchNormalization (x, scale, bias, mean, var) }""")
    with pytest.raises(UnsupportedModelError, match="one value for each channel"):
        edgeopt.export(
            model,
            loss=edgeopt.losses.MSE(),
            optimizer=edgeopt.optimizers.SGD(lr=0.1),
            batch_norm="train",
            dynamic_batch=False,
        )


def test_powers_of_half_precision() -> None:
    class Cubic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) ** 3

    torch.manual_seed(0)
    net, x = Cubic().half(), torch.randn(2, 4).half()
    expected = nn.functional.mse_loss(net(x), torch.zeros(2, 3).half()).item()
    bundle = edgeopt.export(net, x, loss=edgeopt.losses.MSE(), optimizer=edgeopt.optimizers.MADGRAD(lr=0.1))
    loss = bundle.session().step((x.numpy(), np.zeros((2, 3), np.float16)))["loss"]
    assert loss == pytest.approx(expected, rel=1e-2)


def test_a_loop_whose_body_declares_no_types() -> None:
    def undeclared(*names: str) -> list[onnx.ValueInfoProto]:
        return [onnx.ValueInfoProto(name=name) for name in names]

    helper = onnx.helper
    nodes = [
        helper.make_node("MatMul", ["carried", "w"], ["product"]),
        helper.make_node("Tanh", ["product"], ["next"]),
        helper.make_node("Identity", ["running"], ["goes_on"]),
    ]
    body = helper.make_graph(nodes, "body", undeclared("step", "running", "carried"), undeclared("goes_on", "next"))
    weight = np.eye(3, dtype=np.float32) * 0.5
    constants = {"w": weight, "trips": np.array(3, np.int64), "always": np.array(True)}
    shape = [2, 3]
    graph = helper.make_graph(
        [helper.make_node("Loop", ["trips", "always", "x"], ["y"], body=body)],
        "loop",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = edgeopt.export(model, loss=edgeopt.losses.MSE(), optimizer=edgeopt.optimizers.SGD(lr=0.1)).session()
    session.step((np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)))
    w, y = torch.tensor(weight, requires_grad=True), torch.ones(2, 3)
    for _ in range(3):
        y = torch.tanh(y @ w)
    (y * y).mean().backward()
    assert w.grad is not None
    np.testing.assert_allclose(session.parameters()["w"], (w - 0.1 * w.grad).detach(), rtol=1e-5, atol=1e-7)
