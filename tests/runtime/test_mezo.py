"""`TrainingSession.minimize(method="mezo")`: descent by the loss of evaluation alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import edgeopt
from edgeopt_runtime import BatchError, MinimizeError, NonFiniteLossError, StateError, TrainingSession


def export(module: nn.Module, dtype: torch.dtype = torch.float64, **settings: Any) -> edgeopt.Bundle:
    return edgeopt.export(
        module.to(dtype),
        torch.zeros(2, 4, dtype=dtype),
        loss=edgeopt.losses.MSE(),
        optimizer=edgeopt.optimizers.AdamW(lr=0.1),
        **settings,
    )


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


def batch(size: int = 10, seed: int = 0, dtype: Any = np.float64) -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((size, 4)).astype(dtype), rng.standard_normal((size, 2)).astype(dtype)


@pytest.fixture(scope="module")
def bundle() -> edgeopt.Bundle:
    return export(net())


@pytest.fixture
def session(bundle: edgeopt.Bundle) -> TrainingSession:
    return bundle.session(threads=1)


@pytest.mark.parametrize("directions", [1, 3])
def test_steps_are_those_of_the_paper(session: TrainingSession, directions: int) -> None:
    model = net().double()
    batches = [batch(10, 0), batch(6, 1)]
    x, y = (torch.from_numpy(np.concatenate(parts)) for parts in zip(*batches, strict=True))

    def loss(weights: list[torch.Tensor]) -> float:
        named = dict(zip((name for name, _ in model.named_parameters()), weights, strict=True))
        return nn.functional.mse_loss(torch.func.functional_call(model, named, (x,)), y).item()

    weights = [parameter.detach() for parameter in model.parameters()]
    for step in range(3):
        draws = [np.random.default_rng((7, step, count)) for count in range(directions)]
        estimates = []
        for draw in draws:
            z = [torch.from_numpy(draw.standard_normal(tuple(weight.shape))) for weight in weights]
            above = loss([weight + 1e-3 * part for weight, part in zip(weights, z, strict=True)])
            below = loss([weight - 1e-3 * part for weight, part in zip(weights, z, strict=True)])
            estimates.append([(above - below) / 2e-3 * part for part in z])
        gradient = [sum(parts[1:], start=parts[0]) / directions for parts in zip(*estimates, strict=True)]
        weights = [weight - 0.01 * part for weight, part in zip(weights, gradient, strict=True)]

    result = session.minimize(batches, method="mezo", max_iter=3, lr=0.01, directions=directions, seed=7)
    for found, wanted in zip(session.parameters().values(), weights, strict=True):
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-9, atol=1e-11)
    assert result.loss == pytest.approx(loss(weights), rel=1e-9)
    assert (result.iterations, result.evaluations, result.reason) == (3, 6 * directions + 1, "max_iter")
    assert math.isnan(result.gradient_norm)
    assert not result.converged


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_loss_falls(dtype: torch.dtype) -> None:
    session = export(net(), dtype).session(threads=1)
    x, y = (array.astype(str(dtype).removeprefix("torch.")) for array in batch(20))
    before = session.evaluate((x, y))["loss"]
    epsilon = 0.03 if dtype == torch.float16 else 1e-3
    result = session.minimize((x, y), method="mezo", max_iter=150, lr=0.01, epsilon=epsilon, seed=1)
    assert result.loss < 0.8 * before
    assert result.loss == pytest.approx(session.evaluate((x, y))["loss"])


def test_a_seed_decides_the_directions(bundle: edgeopt.Bundle) -> None:
    def trained(seed: int | None) -> NDArray:
        session = bundle.session(threads=1)
        session.minimize(batch(), method="mezo", max_iter=2, lr=0.01, seed=seed)
        return session.parameters()["0.weight"]

    np.testing.assert_array_equal(trained(1), trained(1))
    others = [trained(1), trained(2), trained(None), trained(None)]
    assert len({array.tobytes() for array in others}) == 4


def test_only_trainable_parameters_move_and_nothing_else() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 2))
    session = export(module, trainable=["3.*"]).session(threads=1)
    before = session.state()
    session.minimize(batch(), method="mezo", max_iter=2, lr=0.01)
    after = session.state()
    moved = {name for name in before if not np.array_equal(before[name], after[name])}
    assert moved == {"3.weight", "3.bias"}


def test_an_error_leaves_everything_as_it_was(session: TrainingSession) -> None:
    before = session.parameters()

    def check(error: type[Exception], batches: Any, message: str, **options: Any) -> None:
        with pytest.raises(error, match=message):
            session.minimize(batches, method="mezo", **options)
        for name, array in session.parameters().items():
            np.testing.assert_array_equal(array, before[name])

    check(NonFiniteLossError, batch(), "the state is as it was before", lr=1e300, max_iter=5)
    check(NonFiniteLossError, (batch()[0] * np.nan, batch()[1]), "after 0 others", lr=0.1)
    check(BatchError, [], "no batch")
    check(BatchError, (np.zeros((2, 5)), np.zeros((2, 2))), "must have shape")
    session.accumulate(batch())
    check(StateError, batch(), "call `apply` before")


@pytest.mark.parametrize(
    ("option", "value"),
    [("max_iter", -1), ("lr", 0.0), ("epsilon", math.inf), ("directions", 0), ("seed", -1), ("tolerance_grad", 0.0)],
)
def test_settings_without_sense_are_refused(session: TrainingSession, option: str, value: float) -> None:
    with pytest.raises(MinimizeError, match=option):
        session.minimize(batch(), method="mezo", **{option: value})
