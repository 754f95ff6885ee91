"""`TrainingSession.minimize` on exported bundles and on the one made by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own abbreviation
from numpy.typing import NDArray
from torch import nn

import edgeopt
from edgeopt.optimizers import Descent, HutchinsonDiagonal, Ingredient
from edgeopt_runtime import (
    BatchError,
    BundleContents,
    EdgeoptError,
    ExecutionError,
    MinimizeError,
    MissingGraphError,
    NonFiniteLossError,
    StateError,
    TrainingSession,
)
from edgeopt_runtime.engine import Engine
from edgeopt_runtime.minimize import METHODS
from edgeopt_runtime.minimize.objective import SessionObjective

Arrays = dict[str, NDArray]


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def batch(size: int = 12, seed: int = 0, dtype: Any = np.float64) -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((size, 4)).astype(dtype), rng.integers(0, 3, size)


def export(module: nn.Module, dtype: torch.dtype = torch.float64, **settings: Any) -> edgeopt.Bundle:
    return edgeopt.export(
        module.to(dtype),
        torch.zeros(2, 4, dtype=dtype),
        loss=settings.pop("loss", edgeopt.losses.CrossEntropy()),
        optimizer=settings.pop("optimizer", edgeopt.optimizers.SGD(lr=0.1)),
        **settings,
    )


@pytest.fixture(scope="module")
def bundle() -> edgeopt.Bundle:
    return export(mlp(), hessian_vector=True)


@pytest.fixture
def smooth(bundle: edgeopt.Bundle) -> TrainingSession:
    return bundle.session(threads=1)


@pytest.fixture(scope="module")
def noisy_bundle() -> edgeopt.Bundle:
    """With dropout and BatchNorm."""
    torch.manual_seed(0)
    return export(
        nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3)),
        hessian_vector=True,
    )


@pytest.fixture
def noisy(noisy_bundle: edgeopt.Bundle) -> TrainingSession:
    return noisy_bundle.session(threads=1)


def same(before: Arrays, after: Arrays) -> bool:
    return all(before[name].tobytes() == after[name].tobytes() for name in before)


@pytest.mark.parametrize("search", ["strong_wolfe", None])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
def test_lbfgs_equals_torch(bundle: edgeopt.Bundle, search: str | None, dtype: torch.dtype, tolerance: float) -> None:
    module = mlp().to(dtype)
    session = (bundle if dtype == torch.float64 else export(mlp(), dtype)).session(threads=1)
    x, y = batch(dtype=np.float64 if dtype == torch.float64 else np.float32)
    options: dict[str, Any] = {"lr": 0.8, "max_iter": 12, "history_size": 5, "line_search_fn": search}
    optimizer = torch.optim.LBFGS(module.parameters(), **options)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        return loss

    optimizer.step(closure)
    result = session.minimize((x, y), **options)
    assert result.loss == pytest.approx(closure().item(), abs=tolerance)
    for name, parameter in module.named_parameters():
        assert np.abs(session.parameters()[name] - parameter.detach().numpy()).max() <= tolerance, name


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_minimum_of_a_convex_loss(method: str) -> None:
    """Least squares, whose minimiser has a closed form."""
    torch.manual_seed(0)
    session = export(nn.Linear(4, 2), loss=edgeopt.losses.MSE(), hessian_vector=True).session(threads=1)
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((20, 4)), rng.standard_normal((20, 2))
    result = session.minimize((x, y), method=method, max_iter=200, tolerance_change=0.0)
    solution, *_ = np.linalg.lstsq(np.hstack([x, np.ones((20, 1))]), y, rcond=None)
    assert result.converged
    assert np.abs(session.parameters()["weight"] - solution[:4].T).max() <= 1e-6
    assert np.abs(session.parameters()["bias"] - solution[4]).max() <= 1e-6
    assert result.loss == pytest.approx(np.square(x @ solution[:4] + solution[4] - y).mean(), abs=1e-12)
    assert result.loss == pytest.approx(session.evaluate((x, y))["loss"], abs=1e-14)


class Rosenbrock(nn.Module):
    """Two residuals whose squares are Rosenbrock's function; the input only gives the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.tensor([-1.2, 1.0]))

    def forward(self, ones: torch.Tensor) -> torch.Tensor:
        residuals = torch.stack([10 * (self.x[1] - self.x[0] ** 2), 1 - self.x[0]])
        return ones * residuals


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_rosenbrocks_minimum(method: str) -> None:
    bundle = edgeopt.export(
        Rosenbrock().double(),
        torch.ones(1, 2, dtype=torch.float64),
        loss=edgeopt.losses.MSE(),
        optimizer=edgeopt.optimizers.SGD(lr=0.1),
        hessian_vector=True,
    )
    session = bundle.session(threads=1)
    options: dict[str, Any] = {"max_iter": 200, "tolerance_change": 0.0, "tolerance_grad": 1e-9}
    session.minimize((np.ones((1, 2)), np.zeros((1, 2))), method=method, **options)
    assert np.abs(session.parameters()["x"] - 1).max() <= 1e-8


def test_several_batches_are_one_large_one(bundle: edgeopt.Bundle) -> None:
    x, y = batch(13)
    whole, parts = bundle.session(threads=1), bundle.session(threads=1)
    expected = whole.minimize((x, y), max_iter=6)
    result = parts.minimize(((x[i:j], y[i:j]) for i, j in [(0, 2), (2, 9), (9, 13)]), max_iter=6)
    assert result.loss == pytest.approx(expected.loss, abs=1e-13)
    for name, array in whole.parameters().items():
        assert np.abs(parts.parameters()[name] - array).max() <= 1e-11


def test_the_hand_made_bundle_reaches_the_least_squares_solution(
    session: TrainingSession, make_batches: Callable[..., list[Arrays]]
) -> None:
    batches = make_batches(8, 5)
    frozen = session.parameters()["scale"]
    momentum = {name: array for name, array in session.state().items() if name.startswith("optimizer.")}
    result = session.minimize(batches, max_iter=100)
    x = np.concatenate([batch["x"] for batch in batches]).astype(np.float64)
    y = np.concatenate([batch["target"] for batch in batches])
    solution, *_ = np.linalg.lstsq(np.hstack([x, np.ones((13, 1))]), y / frozen, rcond=None)
    assert np.abs(session.parameters()["weight"] - solution[:3]).max() <= 1e-3
    assert result.loss == pytest.approx(session.evaluate(batches)["loss"], rel=1e-5)
    assert np.array_equal(session.parameters()["scale"], frozen)
    assert same(momentum, session.state())


@dataclass(frozen=True)
class Curved(Descent):
    """A rule that asks for curvature, so that its bundle has more accumulators than gradients."""

    def init(self, param: NDArray) -> Arrays:
        return {}

    def ingredients(self, param: NDArray) -> dict[str, Ingredient]:
        return {"curvature": HutchinsonDiagonal()}

    def delta(self, xp: Any, param: Any, grad: Any, state: Any, hyper: Any, step: Any) -> Any:
        return grad / (1.0 + xp.abs(state["curvature"])), {}


def test_accumulators_of_curvature_are_no_gradients(bundle: edgeopt.Bundle) -> None:
    curved, plain = export(mlp(), optimizer=Curved()).session(threads=1), bundle.session(threads=1)
    assert curved.minimize(batch(), max_iter=5) == plain.minimize(batch(), max_iter=5)


def engine_of(bundle: edgeopt.Bundle) -> Engine:
    return bundle.session(threads=1)._engine


@pytest.mark.parametrize("kind", ["smooth", "noisy"])
def test_hessian_vector_products_are_differences_of_gradients(
    kind: str, bundle: edgeopt.Bundle, noisy_bundle: edgeopt.Bundle
) -> None:
    batches = [batch(7, seed) for seed in range(3)]
    with SessionObjective(engine_of(noisy_bundle if kind == "noisy" else bundle), batches) as objective:
        x = objective.start()
        vector = np.random.default_rng(5).standard_normal(x.size)
        step = 1e-4
        # The central difference of fourth order.
        weights = {-2: 1 / 12, -1: -2 / 3, 1: 2 / 3, 2: -1 / 12}
        difference = sum(w * objective.evaluate(x + k * step * vector).gradient for k, w in weights.items()) / step
        product = objective.hessian_vector(x, vector)
        assert np.abs(product - difference).max() <= 1e-8
        assert np.abs(product).max() > 1e-2


def test_hessian_vector_products_equal_those_of_torch(bundle: edgeopt.Bundle) -> None:
    module = mlp().double()
    x, y = batch()
    parameters = list(module.parameters())
    with SessionObjective(engine_of(bundle), (x, y)) as objective:
        start = objective.start()
        vector = np.random.default_rng(6).standard_normal(start.size)
        product = objective.hessian_vector(start, vector)
    loss = F.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y))
    gradients = torch.autograd.grad(loss, parameters, create_graph=True)
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    expected = torch.autograd.grad(flat, parameters, torch.from_numpy(vector))
    assert np.abs(product - np.concatenate([array.numpy().ravel() for array in expected])).max() <= 1e-12


def test_newton_cg_needs_its_graph_and_says_how_to_get_it(session: TrainingSession, make_batches: Any) -> None:
    before = session.state()
    with pytest.raises(MissingGraphError, match=r"edgeopt\.export\(\.\.\., hessian_vector=True\)") as caught:
        session.minimize(make_batches(4), method="newton_cg")
    assert caught.value.code == "E151"
    assert same(before, session.state())


def test_the_masks_of_dropout_are_held_fixed_and_then_move_on(noisy: TrainingSession) -> None:
    data = batch()
    before = noisy.state()
    first = noisy.minimize(data, max_iter=0)
    drawn = noisy.state()["random.draws"]
    assert drawn == before["random.draws"] + 1
    second = noisy.minimize(data, max_iter=0)
    assert first.loss != second.loss
    # Under fixed masks a line search can lower the loss at every iteration.
    losses = [second.loss]
    for iterations in (1, 2, 4, 8):
        session = TrainingSession(BundleContents(noisy.manifest, noisy._engine.graphs, before))
        losses.append(session.minimize(data, max_iter=iterations).loss)
        assert session.state()["random.draws"] == drawn
    assert losses[1:] == sorted(losses[1:], reverse=True)
    assert losses[1] < first.loss


def test_running_statistics_are_those_of_one_pass_at_the_new_weights(
    noisy: TrainingSession, noisy_bundle: edgeopt.Bundle
) -> None:
    batches = [batch(9, seed) for seed in range(2)]
    noisy.minimize(batches, max_iter=5)
    reference = noisy_bundle.session(threads=1)
    reference.load_parameters(noisy.parameters())
    for data in batches:
        reference.accumulate(data)
    after = reference.state()
    assert same(after, noisy.state())
    assert not np.array_equal(after["1.running_mean"], noisy_bundle.state["1.running_mean"])


def test_a_step_after_minimize_works_as_ever(smooth: TrainingSession, bundle: edgeopt.Bundle) -> None:
    data = batch()
    smooth.minimize(data, max_iter=3)
    other = bundle.session(threads=1)
    other.load_parameters(smooth.parameters())
    assert smooth.step(data) == other.step(data)
    smooth.accumulate(data)
    other.accumulate(data)
    assert smooth.apply() == other.apply()
    assert same(smooth.state(), other.state())


def test_minimize_goes_on_after_save_and_load(smooth: TrainingSession, tmp_path: Any) -> None:
    data = batch()
    smooth.minimize(data, "newton_cg", max_iter=2)
    smooth.save(tmp_path / "mine.edgeopt")
    loaded = TrainingSession.load(tmp_path / "mine.edgeopt", threads=1)
    assert loaded.minimize(data, "newton_cg", max_iter=2) == smooth.minimize(data, "newton_cg", max_iter=2)
    assert same(smooth.state(), loaded.state())


def failing(session: TrainingSession, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the graph of gradients fail from its n-th run on."""
    program, _ = session._engine.program("accumulate")
    run, runs = program.run, []

    def counted(arrays: Any) -> dict[str, float]:
        runs.append(1)
        if len(runs) > after:
            raise ExecutionError("out of memory")
        return run(arrays)

    monkeypatch.setattr(program, "run", counted)


@pytest.mark.parametrize("after", [0, 1, 2, 7])
def test_a_failing_evaluation_changes_nothing(
    after: int, noisy: TrainingSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = noisy.state()
    failing(noisy, after, monkeypatch)
    with pytest.raises(ExecutionError):
        noisy.minimize([batch(5), batch(6)])
    assert same(before, noisy.state())
    assert not noisy._engine.pending


def test_an_interrupt_changes_nothing(noisy: TrainingSession, monkeypatch: pytest.MonkeyPatch) -> None:
    before = noisy.state()
    program, _ = noisy._engine.program("accumulate")
    commit, runs = program.commit, []

    def interrupted() -> None:
        commit()
        runs.append(1)
        if len(runs) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(program, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        noisy.minimize(batch())
    assert same(before, noisy.state())


@pytest.mark.parametrize(
    ("data", "options", "error"),
    [
        ((np.full((3, 4), np.nan), np.zeros(3, np.int64)), {}, NonFiniteLossError),
        (batch(), {"lr": 1e308, "line_search_fn": None}, NonFiniteLossError),
        (batch()[:1], {}, BatchError),
        ([], {}, BatchError),
        (batch(), {"method": "adam"}, MinimizeError),
        (batch(), {"history": 3}, MinimizeError),
        (batch(), {"method": "ssbfgs", "max_parameters": 50}, MinimizeError),
    ],
)
def test_what_cannot_be_minimised_changes_nothing(
    data: Any, options: dict[str, Any], error: type[EdgeoptError], smooth: TrainingSession
) -> None:
    before = smooth.state()
    with pytest.raises(error):
        smooth.minimize(data, **options)
    assert same(before, smooth.state())


def test_accumulated_gradients_must_be_used_first(smooth: TrainingSession) -> None:
    smooth.accumulate(batch())
    with pytest.raises(StateError, match="apply"):
        smooth.minimize(batch())
    smooth.apply()
    assert smooth.minimize(batch()).iterations > 0


def test_a_batch_without_weight_counts_for_nothing(bundle: edgeopt.Bundle) -> None:
    session = export(mlp(), loss=edgeopt.losses.CrossEntropy(ignore_index=-100)).session(threads=1)
    x, y = batch()
    ignored = np.full_like(y, -100)
    assert session.minimize([(x, y), (x, ignored)], max_iter=0).loss == pytest.approx(
        bundle.session(threads=1).minimize((x, y), max_iter=0).loss, abs=1e-14
    )
    with pytest.raises(NonFiniteLossError):
        session.minimize((x, ignored))
