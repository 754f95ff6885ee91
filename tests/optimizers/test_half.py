"""float16 parameters, and float32 gradients whose squares vanish or overflow, over every registered rule."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import array_api_compat.numpy as numpy_namespace
import array_api_compat.torch as torch_namespace
import numpy as np
import pytest
import torch

import edgeopt
from edgeopt.compat.ingredients import draw
from edgeopt.compat.torch import RuleOptimizer
from edgeopt.optimizers import (
    APOLLO,
    COCOB,
    GENIE,
    OPTIMIZERS,
    SM3,
    Adamax,
    AdaMuon,
    AdamW,
    AveragedAdam,
    Fromage,
    Lookahead,
    Mechanic,
    Noise,
    NovoGrad,
    Optimizer,
    QHAdam,
    Updated,
    initial_state,
)
from edgeopt.transforms import ClipByGlobalNorm

Gradient = Callable[[int, tuple[int, ...]], np.ndarray]
SHAPE = (4, 3)


def run(rule: Optimizer, dtype: Any, gradient: Gradient, xp: Any = numpy_namespace, first: int = 1) -> tuple[Any, ...]:
    """Three steps of a parameter around 0.5: where it began, where it ended, and its state."""
    param = (np.arange(12).reshape(SHAPE) / 16 + 0.25).astype(dtype)

    def array(value: Any) -> Any:
        return torch.tensor(np.asarray(value)) if xp is torch_namespace else np.asarray(value)

    state = {slot: array(value) for slot, value in initial_state(rule, param).items()}
    numbers = {name: array(np.float64(value)) for name, value in rule.hyperparameters().items()}
    schedule = {name: array(np.float64(value)) for name, value in rule.schedule.hyperparameters().items()}
    start, moved = param, array(param)
    for number in range(first, first + 3):
        given = {}
        for name, kind in {**rule.ingredients(param), **rule.shared_ingredients({"": param})}.items():
            shape = kind.array_shape(SHAPE)
            # Curvature is 1, so that it divides nothing by 0, and so is the loss.
            made = draw(kind, SHAPE, 0, number) if isinstance(kind, Noise) else np.ones(shape)
            given[name] = array(made.astype(dtype))
        hyper = {**numbers, "lr": rule.schedule(xp, schedule, array(np.int64(number - 1)))}
        grad = array(gradient(number - first, SHAPE).astype(dtype))
        with np.errstate(all="ignore"):
            moved, slots = rule.update(xp, moved, grad, {**state, **given}, hyper, array(np.int64(number)))
        assert {slot: str(slots.get(slot, old).dtype) for slot, old in state.items()} == {
            slot: str(old.dtype) for slot, old in state.items()
        }
        state = {slot: slots.get(slot, old) for slot, old in state.items()}
    return start, np.asarray(moved), {slot: np.asarray(value) for slot, value in state.items()}


def nothing(_: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.zeros(shape)


def one_row(_: int, shape: tuple[int, ...]) -> np.ndarray:
    grad = np.zeros(shape)
    grad[0] = 1.0
    return grad


@pytest.mark.parametrize("library", [numpy_namespace, torch_namespace], ids=["numpy", "torch"])
@pytest.mark.parametrize("gradient", [nothing, one_row], ids=["nothing", "one row"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_gradients_of_zero_in_float16_move_what_they_move_in_float64(
    name: str, gradient: Gradient, library: Any
) -> None:
    start, param, state = run(OPTIMIZERS[name](), np.float16, gradient, library)
    assert param.dtype == np.float16
    assert np.isfinite(param).all()
    assert all(np.isfinite(value).all() for value in state.values())
    origin, exact, _ = run(OPTIMIZERS[name](), np.float64, gradient)
    far = np.abs(exact - origin).max()
    # Ten bits of the parameter and of its state.
    np.testing.assert_allclose(param.astype(float) - start, exact - origin, atol=2e-2 * far + 2e-3)


@pytest.mark.parametrize("rule", [Lookahead(AdamW(), k=2), Mechanic(AdamW()), AveragedAdam()], ids=str)
def test_wrappers_compute_in_float32_too(rule: Optimizer) -> None:
    start, param, _ = run(rule, np.float16, nothing)
    np.testing.assert_allclose(param.astype(float), start * (1 - 0.01 * 0.001) ** 3, atol=1e-3)


def test_what_is_returned_as_it_came_stays_the_same_object() -> None:
    rule, param = COCOB(), np.ones(3, np.float16)
    state = initial_state(rule, param)
    hyper = {**{name: np.float64(value) for name, value in rule.hyperparameters().items()}, "lr": np.float64(1.0)}
    _, slots = rule.update(numpy_namespace, param, param, state, hyper, np.int64(1))
    assert slots["initial_param"] is state["initial_param"]
    view = AveragedAdam()
    state = initial_state(view, param)
    assert view.view(numpy_namespace, param, state, hyper, np.int64(1)) is state["averaged_param"]
    assert rule.view(numpy_namespace, param, state, hyper, np.int64(1)) is param


class Seen(AdamW):
    """Records the dtype it computes in."""

    dtypes: list[str] = []  # noqa: RUF012 # shared on purpose

    def update(self, xp: Any, param: Any, grad: Any, state: Any, hyper: Any, step: Any) -> Updated:
        self.dtypes.append(str(param.dtype))
        return param, dict(state)


def test_other_types_are_left_alone() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        run(Seen(), dtype, nothing)
    assert Seen.dtypes == ["float32"] * 3 + ["float32"] * 3 + ["float64"] * 3


HALF: list[Optimizer] = [AdamW(), Adamax(), SM3(), COCOB(), APOLLO(), GENIE()]


@pytest.mark.parametrize("rule", HALF, ids=lambda rule: type(rule).__name__)
def test_bundles_in_float16_bear_inputs_of_zero(rule: Optimizer) -> None:
    """One input is always 0, and so is the gradient of its weights."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2).half()
    example = torch.zeros(2, 4, dtype=torch.float16)
    bundle = edgeopt.export(model, example, loss=edgeopt.losses.MSE(), optimizer=rule)
    session = bundle.session(on_nonfinite="ignore")
    before = session.parameters()["weight"].astype(float)
    for _ in range(3):
        session.step((np.array([[1, 2, 0, 3]], np.float16), np.zeros((1, 2), np.float16)))
    after = session.parameters()["weight"].astype(float)
    assert np.isfinite(after).all()
    np.testing.assert_allclose(after[:, 2], before[:, 2], atol=2e-2)


def test_a_rule_under_torch_bears_a_gradient_of_zero_where_torch_does_not() -> None:
    param = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
    param.grad = torch.zeros_like(param)
    RuleOptimizer([param], AdamW()).step()
    assert torch.equal(param, torch.ones(2, dtype=torch.float16))


@pytest.mark.parametrize("scale", [1e-20, 1e-30, 1e20, 1e30])
@pytest.mark.parametrize("name", ["fromage", "lars", "muon", "dion", "dog"])
def test_norms_neither_vanish_nor_overflow(name: str, scale: float) -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(size=(3, *SHAPE))

    def gradient(number: int, _: tuple[int, ...]) -> np.ndarray:
        return base[number] * scale

    start, param, _ = run(OPTIMIZERS[name](), np.float32, gradient)
    origin, exact, _ = run(OPTIMIZERS[name](), np.float64, gradient)
    far = np.abs(exact - origin).max()
    np.testing.assert_allclose(param.astype(float) - start, exact - origin, atol=1e-4 * far + 1e-7)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_tiny_gradients_move_what_they_move_in_float64(name: str) -> None:
    rng = np.random.default_rng(0)
    base = 1e-20 * rng.normal(size=(3, *SHAPE))

    def gradient(number: int, _: tuple[int, ...]) -> np.ndarray:
        return base[number]

    start, param, _ = run(OPTIMIZERS[name](), np.float32, gradient)
    origin, exact, _ = run(OPTIMIZERS[name](), np.float64, gradient)
    np.testing.assert_allclose(
        param.astype(float) - start, exact - origin, atol=1e-3 * np.abs(exact - origin).max() + 1e-6
    )


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("first", [2**24, 2**31 - 2, 2**53, 2**63 - 10])
def test_late_counts_leave_a_step_finite(name: str, first: int) -> None:
    rng = np.random.default_rng(0)
    _, param, _ = run(OPTIMIZERS[name](), np.float64, lambda _, shape: rng.normal(size=shape), first=first)
    assert np.isfinite(param).all()


@pytest.mark.parametrize("library", [numpy_namespace, torch_namespace], ids=["numpy", "torch"])
def test_the_global_norm_of_float16_is_that_of_its_values(library: Any) -> None:
    grad = np.full((4, 3), 600.0, np.float16)
    array = torch.tensor(grad) if library is torch_namespace else grad
    hyper = {"max_norm": library.asarray(1.0, dtype=library.float64)}
    (clipped,), metrics = ClipByGlobalNorm(1.0)(library, [array], [array], hyper, library.asarray(1))
    assert float(metrics["grad_norm"]) == pytest.approx(600 * 12**0.5)
    np.testing.assert_allclose(np.asarray(clipped), 1 / 12**0.5, rtol=2e-3)


@pytest.mark.parametrize("rule", [QHAdam(), NovoGrad(), Fromage(), AdaMuon()], ids=lambda rule: type(rule).__name__)
def test_huge_gradients_leave_a_step_finite(rule: Optimizer) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, param, _ = run(rule, np.float32, lambda _, shape: np.full(shape, 1e30))
    assert np.isfinite(param).all()
