"""What forward does with gradients: hooks are refused by name, derivatives of its own are kept or refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import UnsupportedModelError


class Net(nn.Module):
    def __init__(self, inside=None):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)
        self.inside = inside

    def forward(self, x):
        hidden = torch.tanh(self.a(x))
        if self.inside is not None:
            hidden = self.inside(hidden)
        return self.b(hidden)


def refused(module, match):
    with pytest.raises(UnsupportedModelError, match=match):
        edgeopt.export(module, torch.randn(5, 4), loss=edgeopt.losses.MSE(), optimizer=edgeopt.optimizers.SGD(lr=0.1))


@pytest.mark.parametrize(
    ("attach", "named"),
    [
        (lambda net: net.b.weight.register_hook(lambda g: g * 0), r"parameter 'b\.weight'"),
        (lambda net: net.b.bias.register_post_accumulate_grad_hook(lambda p: None), r"parameter 'b\.bias'"),
        (lambda net: net.a.register_full_backward_hook(lambda m, gi, go: None), "module 'a'.*full_backward_hook"),
        (lambda net: net.a.register_full_backward_pre_hook(lambda m, g: None), "module 'a'.*backward_pre_hook"),
        (lambda net: net.register_backward_hook(lambda m, gi, go: None), "the module itself.*register_backward_hook"),
    ],
    ids=["register_hook", "post_accumulate", "full", "pre", "old"],
)
def test_hooks_on_parameters_and_modules_are_refused(attach, named):
    net = Net()
    attach(net)
    refused(net, named)


def test_global_hooks_are_refused():
    handle = nn.modules.module.register_module_full_backward_hook(lambda m, gi, go: None)
    try:
        refused(Net(), "all modules")
    finally:
        handle.remove()


def hooked(hidden):
    if hidden.requires_grad:
        hidden.register_hook(lambda g: -g)
    return hidden


def hooked_node(hidden):
    if hidden.grad_fn is not None:
        hidden.grad_fn.register_hook(lambda gi, go: None)
    return hidden


def backward(hidden):
    if hidden.requires_grad:
        hidden.sum().backward(retain_graph=True)
    return hidden


@pytest.mark.parametrize(
    ("inside", "named"),
    [(hooked, r"register_hook on a tensor of shape \(5, 4\)"), (hooked_node, "grad_fn"), (backward, "backward pass")],
    ids=["tensor", "node", "backward"],
)
def test_hooks_and_backward_passes_in_forward_are_refused(inside, named):
    refused(Net(inside), named)


def kept(hidden):
    if hidden.requires_grad:
        hidden.retain_grad()
    return hidden


def test_forward_hooks_and_retained_gradients_are_right(assert_follows):
    net = Net(kept)
    net.a.register_forward_hook(lambda module, inputs, output: output * 2)
    net.b.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
    assert_follows(net, torch.randn(5, 4).double())


class Energy(nn.Module):
    """A force beside an energy: a derivative by the input."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 1)

    def forward(self, x):
        with torch.enable_grad():
            x = x.clone().requires_grad_(True)
            energy = self.b(torch.tanh(self.a(x)))
            (force,) = torch.autograd.grad(energy.sum(), x, create_graph=True)
            return force + energy


def test_derivatives_in_forward_are_refused():
    refused(Energy(), r"torch\.autograd\.grad")
