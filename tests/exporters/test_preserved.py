"""The module after an export, and what it may not keep between calls."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import ExportWarning, SignatureError, UnsupportedModelError
from edgeopt_exporters.pytorch.preserved import preserved


def export(module, example):
    return edgeopt.export(
        module, example, loss=edgeopt.losses.MSE(), optimizer=edgeopt.optimizers.SGD(lr=0.1), verbose=False
    )


class Restless(nn.Module):
    """Changes all that a module can change of itself."""

    calls: torch.Tensor
    mean: torch.Tensor

    def __init__(self, fails=False):
        super().__init__()
        self.a, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(3))
        self.seen, self.cache, self.last, self.fails = [], {"ones": torch.ones(2)}, None, fails

    def forward(self, x):
        self.calls += 1
        self.mean = self.mean * 0.5 + x.detach().mean(0)
        self.a.weight.data = self.a.weight.data * 0.5
        self.a.bias.data.mul_(0.5)
        self.seen.append(x)
        self.cache["x"], self.last = x, x * 2
        self.norm.eval()
        if self.fails:
            raise RuntimeError("on purpose")
        return self.norm(self.a(x)) + torch.rand(3)


def as_it_is(module):
    tensors = module.state_dict(keep_vars=True)
    return {
        "values": {name: tensor.detach().clone() for name, tensor in tensors.items()},
        "identities": {name: (id(tensor), tensor.data_ptr()) for name, tensor in tensors.items()},
        "gradients": {name: (id(p.grad), p.requires_grad) for name, p in module.named_parameters()},
        "attributes": (list(module.seen), list(module.cache), module.last),
        "modes": [part.training for part in module.modules()],
        "random": torch.get_rng_state(),
        "settings": (torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
    }


def assert_same(before, after):
    for key in ("values",):
        for name, value in before[key].items():
            torch.testing.assert_close(after[key][name], value, rtol=0, atol=0)
    assert torch.equal(before["random"], after["random"])
    for key in before.keys() - {"values", "random"}:
        assert before[key] == after[key], key


def test_everything_is_put_back():
    module = Restless()
    module.a.weight.grad = torch.ones(3, 3)
    before, grad = as_it_is(module), module.a.weight.grad

    def disturb():
        with preserved(module):
            module(torch.randn(4, 3)).sum().backward()
            module.a.weight.requires_grad_(False)
            torch.set_grad_enabled(False)
            torch.set_default_dtype(torch.float64)
            raise RuntimeError("leaves")

    with pytest.raises(RuntimeError, match="leaves"):
        disturb()
    assert_same(before, as_it_is(module))
    assert torch.equal(grad, torch.ones(3, 3))


def test_export_leaves_the_module_as_it_was():
    module, x = Restless(), torch.randn(4, 3)
    before = as_it_is(module)
    bundle = export(module, x)
    assert bundle.state["calls"] == 0
    np.testing.assert_array_equal(bundle.state["a.weight"], before["values"]["a.weight"].numpy())
    assert_same(before, as_it_is(module))


def test_so_does_an_export_that_fails():
    module, x = Restless(fails=True), torch.randn(4, 3)
    before = as_it_is(module)
    with pytest.raises(SignatureError, match="on purpose"):
        export(module, x)
    assert_same(before, as_it_is(module))


class Keeping(nn.Module):
    def __init__(self, keep):
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.ema, self.step, self.hidden, self.history, self.keep = torch.zeros(3), 0, None, [], keep

    def forward(self, x):
        return self.keep(self, self.a(x))


def average(self, h):
    self.ema = 0.9 * self.ema + 0.1 * h.detach().mean(0)
    return h - self.ema


def average_in_place(self, h):
    self.ema.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
    return h - self.ema


def average_for_evaluation(self, h):
    if not self.training:
        return h - self.ema
    self.ema = 0.9 * self.ema + 0.1 * h.detach().mean(0)
    return h


def recurrent(self, h):
    self.hidden = h.detach() if self.hidden is None else h.detach() + self.hidden
    return h + self.hidden


def counting(self, h):
    self.step += 1
    return h * self.step


def alternating(self, h):
    self.step += 1
    return h if self.step % 2 else -h


def listed(self, h):
    self.history.append(h.detach())
    return h * len(self.history)


@pytest.mark.parametrize(
    ("keep", "attribute"),
    [(average, "ema"), (average_in_place, "ema"), (average_for_evaluation, "ema"), (recurrent, "hidden"),
     (counting, "step"), (alternating, "step"), (listed, "history")],
)  # fmt: skip
def test_what_is_kept_in_attributes_is_refused_by_name(keep, attribute):
    with pytest.raises(UnsupportedModelError, match=f"'{attribute}.*register_buffer"):
        export(Keeping(keep), torch.randn(4, 3))


def test_a_counter_that_nothing_reads_is_said():
    def keep(self, h):
        self.step, self.hidden = self.step + 1, h
        return h

    module = Keeping(keep)
    with pytest.warns(ExportWarning, match="'step'"):
        export(module, torch.randn(4, 3))
    assert module.step == 0
    assert module.hidden is None


def test_lazy_parameters_are_refused_in_words():
    with pytest.raises(UnsupportedModelError, match="has no shape yet"):
        export(nn.LazyLinear(3), torch.randn(4, 3))


def test_an_attribute_that_every_call_computes_anew_is_no_state():
    with pytest.warns(FutureWarning):
        module = nn.utils.weight_norm(nn.Linear(4, 3)).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    with torch.no_grad():
        dict(module.named_parameters())["weight_g"].mul_(2.0)
        expected = module(x).numpy()
    found = np.asarray(export(module, x).session().predict((x.numpy(),)))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_export_inside_no_grad_trains_all_the_same(assert_follows):
    module = nn.Linear(4, 3).double()
    reference = copy.deepcopy(module)
    with torch.no_grad():
        bundle = export(module, torch.zeros(5, 4).double())
    session = bundle.session()
    session.step((np.ones((5, 4)), np.zeros((5, 3))))
    assert not np.array_equal(session.parameters()["weight"], reference.weight.detach().numpy())
