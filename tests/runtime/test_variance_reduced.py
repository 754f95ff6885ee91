"""`TrainingSession.minimize(method="svrg")` and `"saga"`: against their equations, and to the minimum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import edgeopt
from edgeopt_runtime import MinimizeError, NonFiniteLossError, TrainingSession

Batch = tuple[NDArray, NDArray]


def export(module: nn.Module, dtype: torch.dtype = torch.float64, **settings: Any) -> TrainingSession:
    torch.manual_seed(0)
    return edgeopt.export(
        module.to(dtype),
        torch.zeros(2, 4, dtype=dtype),
        loss=edgeopt.losses.MSE(),
        optimizer=edgeopt.optimizers.AdamW(lr=0.1),
        **settings,
    ).session(threads=1)


def data(sizes: list[int], outputs: int = 2) -> list[Batch]:
    """Batches of different sizes, whose means weigh as much as they are large."""
    rng = np.random.default_rng(0)
    return [(rng.standard_normal((size, 4)), rng.standard_normal((size, outputs))) for size in sizes]


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 2)


def gradients(batches: list[Batch]) -> tuple[Any, NDArray]:
    """Of a linear model with weight and bias in one vector, each batch's share; and the minimum."""
    n, rows = len(batches), sum(len(x) for x, _ in batches)

    def part(w: NDArray, place: int) -> NDArray:
        x, y = batches[place]
        error = 2 * (x @ w[:8].reshape(2, 4).T + w[8:] - y) / (2 * rows)
        return n * np.concatenate([(error.T @ x).reshape(-1), error.sum(0)])

    x, y = (np.concatenate(each) for each in zip(*batches, strict=True))
    solution = np.linalg.lstsq(np.concatenate([x, np.ones((rows, 1))], axis=1), y, rcond=None)[0]
    return part, np.concatenate([solution[:4].T.reshape(-1), solution[4]])


def svrg(part: Any, w: NDArray, n: int, rounds: int, lr: float, draw: Any) -> NDArray:
    for _ in range(rounds):
        snapshot = w
        mean = sum(part(snapshot, i) for i in range(n)) / n
        for i in draw.integers(n, size=2 * n):
            w = w - lr * (part(w, i) - part(snapshot, i) + mean)
    return w


def saga(part: Any, w: NDArray, n: int, rounds: int, lr: float, draw: Any) -> NDArray:
    table = [part(w, i) for i in range(n)]
    for _ in range(rounds):
        for i in draw.integers(n, size=2 * n):
            new = part(w, i)
            w, table[i] = w - lr * (new - table[i] + sum(table) / n), new
    return w


def vector(session: TrainingSession) -> NDArray:
    state = session.parameters()
    return np.concatenate([state["weight"].reshape(-1), state["bias"]])


@pytest.mark.parametrize(("method", "reference"), [("svrg", svrg), ("saga", saga)])
def test_steps_are_those_of_the_papers(method: str, reference: Any) -> None:
    batches = data([5, 8, 3])
    part, _ = gradients(batches)
    session = export(linear())
    wanted = reference(part, vector(session), 3, 4, 0.05, np.random.default_rng(7))
    result = session.minimize(batches, method=method, max_iter=4, lr=0.05, seed=7)
    np.testing.assert_allclose(vector(session), wanted, rtol=1e-10, atol=1e-12)
    assert (result.iterations, result.reason) == (4, "max_iter")
    # Gradients of single batches, as passes: two for each step, or one and the table; and those at the ends of rounds.
    assert result.evaluations == 5 + {"svrg": 16, "saga": 9}[method]


@pytest.mark.parametrize("method", ["svrg", "saga"])
def test_a_constant_rate_leads_to_the_minimum(method: str) -> None:
    batches = data([5, 8, 3, 6])
    _, minimum = gradients(batches)
    session = export(linear())
    result = session.minimize(batches, method=method, max_iter=2000, lr=0.1, seed=0)
    assert result.reason == "gradient"
    assert result.converged
    np.testing.assert_allclose(vector(session), minimum, atol=1e-6)


@pytest.mark.parametrize("method", ["svrg", "saga"])
def test_dropout_draws_each_batch_the_masks_that_it_has_in_a_pass(method: str) -> None:
    """Else the noise would not vanish at the minimum that these masks have."""
    torch.manual_seed(0)
    session = export(nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2)))
    result = session.minimize(data([5, 8, 3]), method=method, max_iter=2000, lr=0.1, seed=0)
    assert result.reason == "gradient"


def test_running_statistics_end_as_after_one_pass() -> None:
    batches = data([5, 8, 3])
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)).train()
    session = export(module)
    session.minimize(batches, method="svrg", max_iter=2, lr=1e-12, seed=0)
    reference = module.double()
    for x, _ in batches:
        reference(torch.from_numpy(x))
    for name in ("1.running_mean", "1.running_var"):
        np.testing.assert_allclose(session.state()[name], reference.state_dict()[name].numpy(), rtol=1e-8)


def test_a_rate_that_is_too_large_leaves_everything_as_it_was() -> None:
    session = export(linear(), torch.float32)
    batches = [(x.astype(np.float32), y.astype(np.float32)) for x, y in data([5, 8])]
    before = session.state()
    with pytest.raises(NonFiniteLossError, match="smaller `lr`"):
        session.minimize(batches, method="saga", max_iter=200, lr=1e3, seed=0)
    for name, value in session.state().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


@pytest.mark.parametrize(
    ("options", "word"),
    [({"lr": 0.0}, "lr"), ({"inner_steps": 0}, "inner_steps"), ({"seed": -1}, "seed"), ({"history": 3}, "history")],
)
def test_impossible_settings_are_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(MinimizeError, match=word):
        export(linear()).minimize(data([4]), method="svrg", **options)
