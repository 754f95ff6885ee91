"""What a captured program loses on its way to a graph: stopped gradients, in-place updates, strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import UnsupportedModelError
from edgeopt.losses import MSE
from edgeopt.optimizers import SGD


def assert_trains_as_in_torch(module: nn.Module, *inputs: torch.Tensor) -> None:
    """One step of SGD with learning rate 1, and the buffers afterwards."""
    module.train()
    session = edgeopt.export(module, inputs, loss=MSE(), optimizer=SGD(lr=1.0)).session()
    output = module(*inputs)
    target = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
    loss = nn.functional.mse_loss(output, target)
    loss.backward()
    metrics = session.step((*(tensor.numpy() for tensor in inputs), target.numpy()))
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    state = session.state()
    for name, parameter in module.named_parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        np.testing.assert_allclose(state[name], (parameter - gradient).detach().numpy(), atol=2e-6, err_msg=name)
    for name, buffer in module.named_buffers():
        np.testing.assert_allclose(state[name], buffer.numpy(), atol=2e-6, err_msg=name)


class Linear(nn.Module):
    """Something of a linear layer's output."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)


class Detached(Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.linear(x)
        return hidden * hidden.detach()


class StraightThrough(Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = 3 * self.linear(x)
        return hidden + (torch.round(hidden) - hidden).detach()


class WithoutGradient(Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.linear(x)
        with torch.no_grad():
            gate, most = torch.sigmoid(hidden), hidden.argmax(-1)
        return hidden * gate + most[:, None]


class AsNumber(Linear):
    """A number in Python has no gradient."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.linear(x)
        # A mean keeps gradients near 1, for which the bound is meant: of a sum they are as large as 8.
        return hidden * hidden.mean().item()


class OfNumbers(Linear):
    """Tensors that forward makes of numbers, in all the places where they meet others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.linear(x) / torch.sqrt(torch.tensor(x.size(-1), dtype=torch.float) * 2)
        with torch.no_grad():
            constant = torch.tensor(4.0)
            half = constant * 0.5
        hidden = torch.maximum(hidden * half, torch.tensor(-0.3)).clamp(max=torch.tensor(1.5))
        hidden = torch.where(hidden > torch.tensor(0.0), hidden, torch.tensor(0.1) * hidden)
        hidden = hidden * hidden.new_tensor([0.5, 1.0, 2.0, 3.0]) + torch.as_tensor([1.0, 2.0, 3.0, 4.0]).detach()
        return torch.atan2(hidden, torch.tensor(1.0)) + torch.tensor(2.0) ** hidden


class InPlace(Linear):
    """In-place updates of tensors that nobody else holds, and of others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.linear(x)
        alone = torch.relu_(hidden + 1)
        shared = hidden * 2
        updated = torch.tanh_(shared)
        viewed = hidden.sin()
        viewed[:, 0].mul_(3.0)
        through_a_view = hidden.cos()
        torch.sigmoid_(through_a_view.view(-1))
        return alone + shared * updated + viewed + through_a_view


@pytest.mark.parametrize("kind", [Detached, StraightThrough, WithoutGradient, AsNumber, OfNumbers, InPlace])
def test_gradients_stop_where_they_stop_in_torch(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    assert_trains_as_in_torch(kind(), torch.randn(5, 3))


@pytest.mark.parametrize(
    "normalised",
    [nn.utils.parametrizations.spectral_norm, nn.utils.parametrizations.weight_norm],
    ids=["spectral", "weight"],
)
def test_parametrised_weights(normalised: Any) -> None:
    """Spectral normalisation iterates in buffers, in place and without gradients."""
    torch.manual_seed(0)
    assert_trains_as_in_torch(normalised(nn.Linear(3, 3)), torch.randn(5, 3))


def test_padding_gets_no_gradient() -> None:
    torch.manual_seed(0)
    assert_trains_as_in_torch(nn.Embedding(5, 3, padding_idx=2), torch.tensor([[0, 2, 1], [2, 2, 4]]))


def test_gradients_are_divided_by_frequency() -> None:
    torch.manual_seed(0)
    assert_trains_as_in_torch(nn.Embedding(5, 3, scale_grad_by_freq=True), torch.tensor([[0, 2, 1], [2, 2, 4]]))


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return -gradient


class Adversarial(Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Reversed.apply(self.linear(x))


def test_a_backward_of_its_own_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match=r"Reversed is a torch.autograd.Function[^;]*; detach"):
        edgeopt.export(Adversarial(), torch.randn(2, 3), loss=MSE(), optimizer=SGD(lr=1.0))
    assert torch.equal(Reversed.apply(torch.ones(2)), torch.ones(2)), "left as it was"


class MaskedAttention(nn.Module):
    """With a mask, torch takes another kernel, whose result has other strides than in the first capture."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.bias = nn.Parameter(torch.randn(2, 5, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=self.bias[None])
        return self.out(attended.transpose(1, 2).reshape(*x.shape[:-1], -1))


def test_attention_with_a_trained_bias() -> None:
    torch.manual_seed(0)
    assert_trains_as_in_torch(MaskedAttention(), torch.randn(3, 5, 8))


def test_group_norm() -> None:
    """torch writes it with ranks that are known only once shapes are folded."""
    torch.manual_seed(0)
    assert_trains_as_in_torch(nn.Sequential(nn.Conv2d(3, 4, 1), nn.GroupNorm(2, 4)), torch.randn(2, 3, 4, 4))


@pytest.mark.parametrize(("kind", "axes"), [(nn.Conv1d, 1), (nn.Conv2d, 2), (nn.Conv3d, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_convolutions_with_and_without_bias(kind: type[nn.Module], axes: int, bias: bool) -> None:
    torch.manual_seed(0)
    module = kind(2, 4, 3, stride=2, padding=1, dilation=1, groups=2, bias=bias)
    bundle = edgeopt.export(module, torch.randn(2, 2, *[5] * axes), loss=MSE(), optimizer=SGD(lr=1.0))
    nodes = onnx.load_from_string(bundle.contents().graphs["predict.onnx"]).graph.node
    assert [node.op_type for node in nodes] == ["Conv"]
    assert len(nodes[0].input) == 2 + bias
    assert_trains_as_in_torch(module, torch.randn(2, 2, *[5] * axes))
