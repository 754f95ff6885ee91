"""Optimizers of PyTorch that hold the model's parameters."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import ConfigurationError, ExportWarning
from edgeopt.optimizers import SGD, AdamW, Group, as_groups
from edgeopt_exporters.given import as_optimizer


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()


def test_groups_with_settings_of_their_own_train_as_in_pytorch() -> None:
    model, x, y = network(), torch.randn(5, 4).double(), torch.randn(5, 2).double()
    head: dict[str, Any] = {"params": list(model[2].parameters()), "lr": 0.5, "weight_decay": 0.0}
    theirs = torch.optim.AdamW([{"params": list(model[0].parameters())}, head], lr=0.01, weight_decay=0.1)
    session = edgeopt.export(model, x, loss=nn.MSELoss(), optimizer=theirs, verbose=False).session()
    for _ in range(3):
        theirs.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        theirs.step()
        assert session.step(x, y)["loss"] == pytest.approx(loss.item(), rel=1e-12)
    for name, array in session.parameters().items():
        torch.testing.assert_close(torch.from_numpy(array), model.state_dict()[name], rtol=1e-10, atol=1e-12)


def test_what_the_optimizer_does_not_hold_stays() -> None:
    model = network()
    given = as_optimizer(torch.optim.SGD(model[2].parameters(), lr=0.1), None, model)
    assert given.trainable == ("2.weight", "2.bias")
    assert given.groups == as_groups(SGD(lr=0.1))
    assert [decision.text for decision in given.decisions] == [
        "2 of 4 parameters train, those that the optimizer holds."
    ]
    model[2].bias.requires_grad_(False)
    assert as_optimizer(torch.optim.SGD(model[2].parameters()), None, model).trainable == ("2.weight",)
    with pytest.raises(ConfigurationError, match=r"trainable names '0.weight', which the optimizer does not hold"):
        as_optimizer(torch.optim.SGD(model[2].parameters()), "0.*", model)


def test_all_of_them_is_no_wish() -> None:
    model = network()
    assert as_optimizer(torch.optim.SGD(model.parameters()), None, model).trainable is None
    assert as_optimizer(torch.optim.SGD(model.parameters()), ["2.*"], model).trainable == ("2.*",)


def test_what_it_gathered_is_not_taken_over_in_silence() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 4).double()).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        as_optimizer(optimizer, None, model)
    optimizer.step()
    with pytest.warns(ExportWarning, match=r"load_torch_state\(bundle, optimizer.state_dict\(\)\)"):
        edgeopt.export(model, torch.ones(2, 4).double(), loss="mse", optimizer=optimizer, check=False, verbose=False)


class RuleOptimizer:
    """What edgeopt.compat.torch makes: a rule inside an optimizer of PyTorch."""

    rule = AdamW()
    param_groups: tuple[Any, ...] = ()


class AdamWOfOthers(torch.optim.AdamW):
    """Derived from one of PyTorch's, with a step that may be anything."""


def scheduled() -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(network().parameters(), lr=0.1)
    torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, 100, cycle_momentum=False)
    return optimizer


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (torch.optim.SGD(network().parameters()), "holds 4 parameters that are not this model's; make it of"),
        (scheduled(), "give the optimizer without it, and the rate as a schedule"),
        (torch.optim.lr_scheduler.StepLR(torch.optim.SGD(network().parameters()), 3), "the rate as a schedule"),
        ((torch.optim.SGD(network().parameters()), scheduled()), "not this model's|the rate as a schedule"),
        (torch.optim.LBFGS, r'session.minimize\(batches, method="lbfgs"\)'),
        (torch.optim.LBFGS(network().parameters()), r'session.minimize\(batches, method="lbfgs"\)'),
        (AdamWOfOthers(network().parameters()), "must be one of edgeopt's"),
        (RuleOptimizer(), "give its rule itself"),
        ({"learning_rate": 1e-3}, r"settings without a rule; give one, edgeopt.optimizers.AdamW\(lr=0.001\)"),
        (Group("*.bias", weight_decay=0.0), r"give \[Group\(...\), AdamW\(lr=...\)\]"),
        (1e-3, "must be one of edgeopt's"),
        (None, "must be one of edgeopt's"),
    ],
)
def test_what_cannot_be_taken_over_is_refused_in_a_line(optimizer: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        as_optimizer(optimizer, None, network())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("trainable", [True, 3, nn.Linear(2, 2), nn.Linear(2, 2).parameters(), {"head": True}])
def test_patterns_are_words(trainable: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"trainable='head.\*', or None for all"):
        as_optimizer("sgd", trainable, network())


def test_a_class_of_pytorch_stands_for_its_defaults() -> None:
    assert as_groups(torch.optim.AdamW) == as_groups(AdamW) == as_groups("adamw")
