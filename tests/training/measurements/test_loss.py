"""Rules that are given the value of the loss, in a bundle: MoMo and others against optax."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import optax
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import edgeopt
from edgeopt import Bundle
from edgeopt.losses import CrossEntropy
from edgeopt.optimizers import SGD, Group, MoMo, MoMoAdam, Optimizer, OptimizerLike, PolyakSGD

STEPS = 10
Batch = dict[str, np.ndarray[Any, Any]]
Make = Callable[[], optax.GradientTransformationExtraArgs]


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.fixture
def batches() -> list[Batch]:
    rng = np.random.default_rng(0)
    return [{"input": rng.normal(size=(7, 4)), "target": rng.integers(0, 3, 7)} for _ in range(STEPS)]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def export(optimizer: OptimizerLike) -> Bundle:
    return edgeopt.export(network(), torch.zeros(2, 4).double(), loss=CrossEntropy(), optimizer=optimizer)


def train_optax(batches: list[Batch], make: Make, groups: list[list[str]]) -> dict[str, np.ndarray[Any, Any]]:
    """The losses and gradients of PyTorch, and the updates of optax, with a state for each group."""
    model = network()
    parameters = dict(model.named_parameters())

    def arrays(names: list[str], *, grads: bool = False) -> dict[str, Any]:
        found = {name: parameters[name].grad if grads else parameters[name].detach() for name in names}
        return {name: jax.numpy.asarray(value.numpy()) for name, value in found.items() if value is not None}

    transformation = make()
    states = [transformation.init(arrays(names)) for names in groups]
    for batch in batches:
        model.zero_grad()
        loss = cross_entropy(model(torch.tensor(batch["input"])), torch.tensor(batch["target"]))
        loss.backward()
        for place, names in enumerate(groups):
            updates, states[place] = transformation.update(
                arrays(names, grads=True), states[place], arrays(names), value=loss.item()
            )
            with torch.no_grad():
                for name, update in updates.items():
                    parameters[name].add_(torch.tensor(np.asarray(update)))
    return {name: parameter.detach().numpy() for name, parameter in parameters.items()}


RULES: dict[str, tuple[Optimizer, Make]] = {
    "momo": (MoMo(), optax.contrib.momo),
    "momo, adaptive": (
        MoMo(0.5, lower_bound=0.1, weight_decay=0.1, adapt_lower_bound=True),
        lambda: optax.contrib.momo(0.5, lower_bound=0.1, weight_decay=0.1, adapt_lower_bound=True),
    ),
    "momo_adam": (MoMoAdam(0.1), lambda: optax.contrib.momo_adam(0.1)),
    "momo_adam, adaptive": (
        MoMoAdam(0.5, lower_bound=-1.0, weight_decay=0.1, adapt_lower_bound=True),
        lambda: optax.contrib.momo_adam(0.5, lower_bound=-1.0, weight_decay=0.1, adapt_lower_bound=True),
    ),
    "polyak_sgd": (PolyakSGD(lower_bound=0.9), lambda: optax.polyak_sgd(f_min=0.9)),
}


@pytest.mark.parametrize("way", ["step", "accumulate"])
@pytest.mark.parametrize(("rule", "make"), RULES.values(), ids=RULES)
def test_ten_updates_equal_optax(rule: Optimizer, make: Make, way: str, batches: list[Batch]) -> None:
    session = export(rule).session()
    start = {name: parameter.detach().numpy() for name, parameter in network().named_parameters()}
    for batch in batches:
        if way == "step":
            session.step(batch)
        else:
            for part in (slice(0, 2), slice(2, 7)):  # of different weights
                session.accumulate({name: values[part] for name, values in batch.items()})
            session.apply()
    expected = train_optax(batches, make, [list(start)])
    state = session.state()
    for name, value in expected.items():
        assert np.abs(value - start[name]).max() > 1e-3
        np.testing.assert_allclose(state[name], value, rtol=0, atol=1e-12, err_msg=name)


def test_each_group_is_given_the_same_loss(batches: list[Batch]) -> None:
    session = export([Group("*.bias", optimizer=MoMo()), MoMo()]).session()
    for batch in batches:
        session.step(batch)
    expected = train_optax(batches, optax.contrib.momo, [["0.weight", "2.weight"], ["0.bias", "2.bias"]])
    for name, value in expected.items():
        np.testing.assert_allclose(session.state()[name], value, rtol=0, atol=1e-12, err_msg=name)


def test_the_sum_of_losses_is_an_accumulator_of_the_group() -> None:
    bundle = export(MoMo())
    (spec,) = [spec for spec in bundle.manifest.accumulators if spec.slot is not None]
    assert (spec.name, spec.shape, spec.parameter, spec.slot) == ("measured.loss", (), None, "loss")


def test_another_optimizer_leaves_no_loss_behind() -> None:
    new = export(MoMo()).with_optimizer(SGD(0.1)).bundle
    assert {spec.name for spec in new.manifest.accumulators} == {
        spec.name for spec in export(SGD(0.1)).manifest.accumulators
    }
    assert not any("measured" in port.name for graph in new.manifest.signatures.values() for port in graph.outputs)
