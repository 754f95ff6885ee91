"""What every update rule keeps, over the registry. A new rule adds one row to CASES."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any, NamedTuple

import array_api_compat.numpy as numpy_namespace
import array_api_compat.torch as torch_namespace
import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import OPTIMIZERS, Optimizer
from edgeopt.schedules import Constant, WarmupCosine


class Case(NamedTuple):
    name: str
    settings: dict[str, Any]  # switches every term on
    converging: dict[str, Any]  # reaches a minimum in 2000 steps


CASES = [
    Case("adam", {"weight_decay": 0.01, "amsgrad": True}, {"lr": 2e-2}),
    Case("adamw", {"amsgrad": True}, {"lr": 2e-2, "weight_decay": 0.0}),
    Case("sgd", {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01}, {"lr": 2e-3, "momentum": 0.9}),
]
SHAPES = [(), (5,), (3, 4), (2, 3, 4), (2, 3, 2, 2)]


@pytest.fixture(params=CASES, ids=[case.name for case in CASES])
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture
def optimizer(case: Case) -> Optimizer:
    return OPTIMIZERS[case.name](**case.settings)


def draws(steps: int, shape: tuple[int, ...], dtype: Any = np.float64, scale: float = 1.0) -> Any:
    """A parameter and gradients that span four decades."""
    rng = np.random.default_rng(7)
    sizes = scale * 10.0 ** rng.uniform(-3, 1, (steps, *shape))
    return rng.normal(size=shape).astype(dtype), (rng.normal(size=(steps, *shape)) * sizes).astype(dtype)


def test_every_registered_rule_has_a_row():
    assert sorted(OPTIMIZERS) == [case.name for case in CASES]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shape_and_dtype_are_kept(optimizer, xp, train, shape, dtype):
    start, grads = draws(3, shape, dtype)
    param, state = train(optimizer, xp, start, lambda _, i: grads[i], 3)
    for array in (param, *state.values()):
        assert array.shape == shape
        assert array.dtype == dtype
    assert not np.array_equal(param, start)


def test_slots_are_named_once_and_returned_each_step(optimizer, xp, train):
    start, grads = draws(1, (3,))
    _, state = train(optimizer, xp, start, lambda _, i: grads[i], 1)
    assert tuple(state) == optimizer.slots()
    assert len(set(optimizer.slots())) == len(optimizer.slots())
    for slot in optimizer.slots():
        assert slot.isidentifier()
        assert optimizer.init(slot, start).shape == start.shape


def test_inputs_are_not_changed(optimizer, xp, train):
    start, grads = draws(1, (4,))
    before = start.copy(), grads.copy()
    train(optimizer, xp, start, lambda _, i: grads[i], 1)
    np.testing.assert_array_equal(start, before[0])
    np.testing.assert_array_equal(grads, before[1])


def test_zero_gradient_at_the_first_step_is_finite(optimizer, xp, train):
    start, _ = draws(1, (4,), np.float32)
    param, state = train(optimizer, xp, start, lambda p, _: 0 * p, 1)
    assert all(np.isfinite(array).all() for array in (param, *state.values()))


def test_zero_gradient_moves_nothing_without_decay(optimizer, xp, train):
    resting = replace(optimizer, weight_decay=0.0) if hasattr(optimizer, "weight_decay") else optimizer
    start, _ = draws(1, (4,))
    param, _ = train(resting, xp, start, lambda p, _: 0 * p, 3)
    np.testing.assert_array_equal(param, start)


@pytest.mark.parametrize("magnitude", [1e-42, 1e-30, 1e-10, 1e10, 1e30])
def test_extreme_gradients_give_no_nan(optimizer, xp, train, magnitude):
    start, grads = draws(4, (16,), np.float32)
    with np.errstate(over="ignore", under="ignore"):
        scaled = (np.sign(grads) * np.float32(magnitude)).astype(np.float32)
        param, state = train(optimizer, xp, start, lambda _, i: scaled[i], 4)
    assert not any(np.isnan(array).any() for array in (param, *state.values()))


def test_numbers_can_be_changed_without_a_new_instance(optimizer, xp, train):
    start, grads = draws(5, (6,))
    for name, value in optimizer.hyperparameters().items():
        changed = train(optimizer, xp, start, lambda _, i: grads[i], 5, {name: 0.5 * value})
        rebuilt = train(replace(optimizer, **{name: 0.5 * value}), xp, start, lambda _, i: grads[i], 5)
        np.testing.assert_array_equal(changed[0], rebuilt[0], err_msg=name)
        for slot in optimizer.slots():
            np.testing.assert_array_equal(changed[1][slot], rebuilt[1][slot], err_msg=f"{name}, {slot}")


def test_hyperparameters_are_finite_floats_and_leave_the_rate_to_the_schedule(optimizer):
    numbers = optimizer.hyperparameters()
    assert "lr" not in numbers
    assert all(type(value) is float and np.isfinite(value) for value in numbers.values())
    assert optimizer.schedule == Constant(optimizer.lr)


def test_the_rate_follows_the_schedule(optimizer, xp, train):
    start, grads = draws(1, (6,))
    warming = replace(optimizer, lr=WarmupCosine(1.0, warmup=4, total=10))
    param, _ = train(warming, xp, start, lambda _, i: grads[i], 1)
    np.testing.assert_array_equal(param, start)  # the first rate of a warm-up is 0
    param, _ = train(replace(optimizer, lr=0.25), xp, start, lambda _, i: grads[i], 1)
    assert not np.array_equal(param, start)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_and_torch_agree(optimizer, train, dtype):
    start, grads = draws(25, (4, 3), dtype)
    ours = train(optimizer, numpy_namespace, start, lambda _, i: grads[i], 25)
    theirs = train(optimizer, torch_namespace, start, lambda _, i: grads[i], 25)
    # Every tensor operation is correctly rounded in both; only a power of the scalars may differ by one unit.
    np.testing.assert_array_max_ulp(ours[0], theirs[0], maxulp=2)
    for slot in optimizer.slots():
        np.testing.assert_array_equal(ours[1][slot], theirs[1][slot])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_as_onnx_it_computes_the_same(optimizer, run_as_onnx, dtype):
    slots, numbers = optimizer.slots(), {**optimizer.hyperparameters(), "lr": 0.01}
    param, (grad, *others) = draws(1 + len(slots), (4, 3), dtype)
    state = {slot: abs(value) for slot, value in zip(slots, others, strict=True)}
    hyper = {name: np.asarray(value) for name, value in numbers.items()}
    inputs = {"param": param, "grad": grad, **state, **hyper, "step": np.asarray(3)}

    def program(xp, arrays):
        own_state, own_hyper = ({name: arrays[name] for name in names} for names in (slots, hyper))
        moved, updated = optimizer.update(xp, arrays["param"], arrays["grad"], own_state, own_hyper, arrays["step"])
        return {"moved": moved, **{f"next.{slot}": value for slot, value in updated.items()}}

    expected = program(numpy_namespace, inputs)
    for name, result in run_as_onnx(program, inputs).items():
        assert result.dtype == dtype
        np.testing.assert_allclose(result, expected[name], rtol=4 * np.finfo(dtype).eps, err_msg=name)


def test_converges_on_a_quadratic(case, train):
    rule = OPTIMIZERS[case.name](**case.converging)
    scales, minimum = np.array([1.0, 10.0, 0.1, 100.0]), np.array([1.0, -2.0, 0.5, 0.0])
    param, _ = train(rule, numpy_namespace, np.zeros(4), lambda p, _: scales * (p - minimum), 2000)
    start = 0.5 * np.sum(scales * minimum**2)
    assert 0.5 * np.sum(scales * (param - minimum) ** 2) < 1e-2 * start


def test_converges_on_rosenbrock(case, train):
    rule = OPTIMIZERS[case.name](**case.converging)

    def gradient(p, _):
        x, y = p
        return np.array([-2 * (1 - x) - 400 * x * (y - x * x), 200 * (y - x * x)])

    (x, y), _ = train(rule, numpy_namespace, np.array([-0.5, 0.5]), gradient, 2000)
    assert (1 - x) ** 2 + 100 * (y - x * x) ** 2 < 1e-2  # from 8.5


def test_maximize_climbs_as_far_as_it_would_descend(optimizer, xp, train):
    start, grads = draws(5, (6,))
    descending, climbing = replace(optimizer, maximize=False), replace(optimizer, maximize=True)
    down, _ = train(descending, xp, start, lambda _, i: grads[i], 5)
    up, _ = train(climbing, xp, start, lambda _, i: -grads[i], 5)
    np.testing.assert_array_equal(up, down)


def test_is_a_value(optimizer):
    assert replace(optimizer) == optimizer
    assert hash(replace(optimizer)) == hash(optimizer)
    assert pickle.loads(pickle.dumps(optimizer)) == optimizer


@pytest.mark.parametrize("lr", [-1e-3, float("nan"), float("inf"), "fast", None])
def test_impossible_learning_rates_are_refused(case, lr):
    with pytest.raises(ConfigurationError, match="lr"):
        OPTIMIZERS[case.name](lr=lr)
