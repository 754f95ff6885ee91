"""Parameters and other tensors that forward writes into behind the back of autograd."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import edgeopt
from edgeopt.errors import UnsupportedModelError


# Numbers in forward are such as float32 holds.
class Writes(nn.Module):
    def __init__(self, write, frozen=True):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k = nn.Linear(4, 3), nn.Linear(4, 3)
        self.k.requires_grad_(not frozen)
        self.write = write

    def forward(self, x):
        result = self.write(self, x)
        return self.q(x) * self.k(x) if result is None else result


def momentum(self, x):
    with torch.no_grad():
        for mine, other in zip(self.k.parameters(), self.q.parameters(), strict=True):
            mine.mul_(0.875).add_(other, alpha=0.125)


def momentum_by_lists(self, x):
    with torch.no_grad():
        torch._foreach_mul_(list(self.k.parameters()), 0.875)
        torch._foreach_add_(list(self.k.parameters()), list(self.q.parameters()), alpha=0.125)
        torch._foreach_lerp_([self.k.bias], [self.q.bias], 0.25)


def momentum_by_data(self, x):
    for mine, other in zip(self.k.parameters(), self.q.parameters(), strict=True):
        mine.data = mine.data * 0.875 + other.data * 0.125


def clamped_data(self, x):
    data = self.q.weight.data
    data.clamp_(-0.375, 0.375)
    data.mul_(0.875)


def max_norm(self, x):
    self.q.weight.data = torch.renorm(self.q.weight.data, p=2, dim=0, maxnorm=0.5)


def normalised(self, x):
    with torch.no_grad():
        self.q.weight.copy_(functional.normalize(self.q.weight, dim=1))


def one_row(self, x):
    with torch.no_grad():
        self.q.weight[1].mul_(0.5)
        self.q.weight[:, 2] = 0.25


def used_before_and_after(self, x):
    first = x @ self.q.weight.T
    with torch.no_grad():
        self.q.bias.clamp_(-0.125, 0.125)
    between = self.q.bias * 2
    with torch.no_grad():
        self.q.bias.lerp_(self.k.bias, 0.25)
    return first + between + self.q.bias


def inside_inference(self, x):
    with torch.inference_mode():
        self.k.weight.mul_(0.875).add_(self.q.weight, alpha=0.125)


def in_place_frozen(self, x):
    self.k.weight.mul_(0.875)


def activation(self, x):
    hidden = self.q(x) * 1.0
    with torch.no_grad():
        hidden.clamp_(-0.25, 0.25)
    return hidden * self.k(x)


def activation_through_detach(self, x):
    hidden = self.q(x) * 1.0
    hidden.detach().mul_(2.0)
    return hidden * self.k(x)


def in_training_alone(self, x):
    if self.training:
        momentum(self, x)


WRITES = [
    momentum, momentum_by_lists, momentum_by_data, clamped_data, max_norm, normalised, one_row, used_before_and_after,
    inside_inference, in_place_frozen, activation, activation_through_detach, in_training_alone,
]  # fmt: skip


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_training_follows_torch(write, assert_follows):
    assert_follows(Writes(write), torch.randn(5, 4).double())


@pytest.mark.parametrize("write", [momentum, one_row, clamped_data], ids=lambda write: write.__name__)
def test_a_trained_parameter_moves_from_what_is_written(write, assert_follows):
    module = Writes(write, frozen=False)
    assert_follows(module, torch.randn(5, 4).double())


def test_prediction_uses_what_evaluation_writes():
    module = Writes(clamped_data).double()
    x = torch.randn(5, 4).double()
    bundle = edgeopt.export(module, x, loss=edgeopt.losses.MSE(), optimizer=edgeopt.optimizers.SGD(lr=0.1))
    expected = copy.deepcopy(module).eval()(x).detach().numpy()
    found = np.asarray(bundle.session().predict((x.numpy(),)))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert [d.subject for d in bundle.decisions if "do not keep" in d.text] == ["q.weight"]


def test_tied_parameters_are_written_once(assert_follows):
    def write(self, x):
        with torch.no_grad():
            self.k.weight.mul_(0.875)

    module = Writes(write, frozen=False)
    module.k.weight = module.q.weight
    assert_follows(module, torch.randn(5, 4).double())


def test_another_optimizer_goes_on_from_what_is_written():
    module = Writes(momentum, frozen=False).double()
    x, reference = torch.randn(5, 4).double(), copy.deepcopy(module)
    bundle = edgeopt.export(module, x, loss=edgeopt.losses.MSE(), optimizer=edgeopt.optimizers.AdamW(lr=0.1))
    frozen = edgeopt.optimizers.Group("k.*", frozen=True)
    session = bundle.with_optimizer([frozen, edgeopt.optimizers.SGD(lr=0.05)]).bundle.session()
    trained = torch.optim.SGD(reference.q.parameters(), lr=0.05)
    target = np.random.default_rng(0).standard_normal((5, 3))
    for _ in range(2):
        trained.zero_grad()
        functional.mse_loss(reference(x), torch.from_numpy(target)).backward()
        trained.step()
        session.step((x.numpy(), target))
    for name, parameter in reference.named_parameters():
        np.testing.assert_allclose(session.parameters()[name], parameter.detach().numpy(), rtol=1e-9, err_msg=name)


def test_another_parameter_in_its_place_is_refused_by_name():
    def write(self, x):
        self.q.weight = nn.Parameter(self.q.weight * 2)

    with pytest.raises(UnsupportedModelError, match=r"q\.weight.*copy_\(\)"):
        edgeopt.export(
            Writes(write), torch.randn(5, 4), loss=edgeopt.losses.MSE(), optimizer=edgeopt.optimizers.SGD(lr=0.1)
        )
