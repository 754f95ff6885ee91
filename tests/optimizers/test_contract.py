"""What every update rule keeps, over the registry. A new rule adds one row to CASES."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import array_api_compat.numpy as numpy_namespace
import array_api_compat.torch as torch_namespace
import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import OPTIMIZERS, Collective, Descent, Optimizer, initial_state
from edgeopt.schedules import Constant, WarmupCosine, WarmupLinear


class Case(NamedTuple):
    name: str
    settings: dict[str, Any]  # switches every term on
    converging: dict[str, Any]  # reaches a minimum in so many `steps`
    # What makes a zero gradient move nothing, beside the absence of weight decay; None where nothing does.
    resting: Mapping[str, Any] | None = MappingProxyType({})
    rests_without_a_rate: bool = True
    first_move: int = 1  # the update that moves the parameter first
    steps: int = 2000  # more for a rule whose guarantee is for the mean of its iterates


DECAY = {"weight_decay": 0.01}


def falling(peak: float, warmup: int = 0) -> WarmupLinear:
    """For rules that keep stepping as far as the rate says, however small the gradient."""
    return WarmupLinear(peak, warmup, 2000)


CASES = [
    Case("acc_sgd", DECAY, {"lr": 1e-3}),
    Case("adabelief", {**DECAY, "amsgrad": True}, {"lr": 2e-2}),
    Case("adabound", {**DECAY, "gamma": 0.1}, {"lr": falling(2e-2)}),
    Case("adadelta", DECAY, {"lr": falling(1.0)}),
    Case("adafactor", DECAY, {"lr": falling(5e-2)}),
    Case("adafisher", {**DECAY, "every": 2}, {"lr": 2e-3}),
    Case("adagrad", {**DECAY, "lr_decay": 0.1, "initial_accumulator_value": 0.1}, {"lr": 0.3}),
    Case("adahessian", {**DECAY, "every": 2}, {"lr": 1.0}),
    Case("adam", {**DECAY, "amsgrad": True}, {"lr": 2e-2}),
    Case("adam_mini", DECAY, {"lr": 2e-2}),
    Case("adamax", DECAY, {"lr": 0.1}),
    Case("adamax_plus", {**DECAY, "clip_inf": 1.0, "scalar_norm": True}, {"lr": 0.1, "clip_inf": 1e4}),
    Case("adamod", DECAY, {"lr": 0.1}),
    Case("adamp", {**DECAY, "nesterov": True}, {"lr": 2e-2}),
    Case("adamuon", DECAY, {"lr": falling(2e-2)}),
    Case("adamw", {"amsgrad": True}, {"lr": 2e-2, "weight_decay": 0.0}),
    Case("adan", DECAY, {"lr": 1e-2}),
    Case("adanorm", DECAY, {"lr": 2e-2}),
    Case("ademamix", {**DECAY, "t_alpha_beta3": 10.0}, {"lr": 5e-2}),
    Case("adopt", DECAY, {"lr": 1.0}),
    Case("aggmo", DECAY, {"lr": 1e-3}),
    Case("amacp", {**DECAY, "amsgrad": True}, {"lr": 2e-2}),
    Case("amsbound", {**DECAY, "gamma": 0.1}, {"lr": falling(2e-2)}),
    Case("apollo", {**DECAY, "rank": 2, "update_proj_gap": 2}, {"lr": 2e-2}),
    Case("apollo_mini", {**DECAY, "update_proj_gap": 2}, {"lr": 2e-2}),
    Case("asgd", {**DECAY, "lambd": 0.1, "t0": 2.0}, {"lr": 2e-3}, resting={"lambd": 0.0}),
    Case("averaged_adam", {**DECAY, "amsgrad": True}, {"lr": 2e-2}),
    Case("bge_adam", {**DECAY, "entropy_weight": 0.5}, {"lr": falling(0.1)}),
    Case("came", DECAY, {"lr": 2e-2}),
    Case("cocob", DECAY, {"alpha": 1.0}, steps=5000),
    Case("dadapt_adagrad", {**DECAY, "momentum": 0.5}, {"lr": 4.0, "momentum": 0.9}),
    Case("dadapt_adam", {**DECAY, "use_bias_correction": True}, {"lr": falling(1.0)}),
    Case("dadapt_adan", {}, {"lr": falling(0.3), "weight_decay": 0.0}),
    Case("dadapt_lion", DECAY, {"lr": falling(1.0), "d0": 5e-3, "growth_rate": 1.0, "beta1": 0.999}),
    Case("dadapt_sgd", DECAY, {"lr": 1.0, "momentum": 0.9}),
    Case("diffgrad", DECAY, {"lr": 5e-2}),
    Case("dion", {**DECAY, "rank": 2}, {"lr": falling(5e-2), "weight_decay": 0.0}),
    Case("dog", DECAY, {"lr": falling(2.0), "reps_rel": 1e-2}),
    Case("eva", {**DECAY, "momentum": 0.5}, {"lr": 2e-3}),
    Case("eva_variance", {**DECAY, "amsgrad": True}, {"lr": 5e-2}),
    Case("fadam", {}, {"lr": falling(2e-2), "weight_decay": 0.0}),
    Case("fira", {**DECAY, "rank": 2, "update_proj_gap": 2}, {"lr": 2e-2}),
    Case("fista", DECAY, {"lr": 1e-3}),
    Case("fromage", {}, {"lr": falling(0.1)}, resting=None),
    Case("galore", {**DECAY, "rank": 2, "update_proj_gap": 2}, {"lr": 2e-2}),
    Case("genie", DECAY, {"lr": 2e-2, "deterministic": True}),
    Case("grams", DECAY, {"lr": 2e-2}),
    Case("hn_adam", {**DECAY, "norm": 3.0}, {"lr": 2e-2}),
    Case("kron", {**DECAY, "max_share": 0.5, "min_share": 0.5}, {"lr": falling(2e-2)}),
    Case("lamb", {**DECAY, "max_norm": 1.0, "trust_clip": True}, {"lr": falling(2e-2)}),
    Case("laprop", DECAY, {"lr": 2e-2}),
    Case("lars", {**DECAY, "nesterov": True, "trust_clip": True}, {"lr": falling(3.0)}),
    Case("lazy_adam", {**DECAY, "amsgrad": True}, {"lr": 2e-2}),
    Case("lion", DECAY, {"lr": falling(5e-3)}),
    Case("lora_rite", DECAY, {"lr": falling(2e-2), "skip_above": 0.0}),
    Case("madgrad", DECAY, {"lr": 1e-3}, rests_without_a_rate=False),
    Case("mars", DECAY, {"lr": 2e-3}),
    Case(
        "micro_adam",
        {**DECAY, "density": 0.3, "window": 3, "block": 8, "bucket": 4},
        {"lr": falling(5e-2), "density": 1.0, "window": 4, "beta1": 0.5, "beta2": 0.9},
    ),
    Case("momo", {**DECAY, "adapt_lower_bound": True, "lower_bound": 0.1}, {"lr": 1.0}),
    Case("momo_adam", {**DECAY, "adapt_lower_bound": True, "lower_bound": 0.1}, {"lr": 1.0}),
    Case("muon", {}, {"lr": falling(5e-3), "weight_decay": 0.0}),
    Case("nadam", DECAY, {"lr": 2e-2}),
    Case("normuon", DECAY, {"lr": falling(5e-3)}),
    Case("novograd", {**DECAY, "grad_averaging": True}, {"lr": falling(1e-3)}),
    Case("padam", DECAY, {"lr": 1e-2}),
    Case("pid", {**DECAY, "momentum": 0.5}, {"lr": 1e-4, "momentum": 0.9}),
    Case("polyak_sgd", {"eps": 0.1, "lower_bound": -0.1, "variant": "sps+"}, {"lr": 1.0}),
    Case("prodigy", {**DECAY, "use_bias_correction": True, "growth_rate": 2.0}, {"lr": falling(1.0)}),
    Case("qhadam", {**DECAY, "nu2": 0.9}, {"lr": 1e-2}),
    Case("qhm", DECAY, {"lr": falling(2e-2)}),
    Case("radam", {**DECAY, "beta2": 0.9}, {"lr": falling(0.1, warmup=50)}),
    Case("ranger", {**DECAY, "beta2": 0.9, "k": 2}, {"lr": falling(0.1, warmup=50)}),
    Case("rmsprop", {**DECAY, "momentum": 0.9, "centered": True}, {"lr": falling(1e-2)}),
    Case("rprop", {"step_min": 0.0}, {}),
    Case("schedule_free_adamw", {**DECAY, "warmup_steps": 2.0}, {"lr": 5e-2}),
    Case("schedule_free_radam", {**DECAY, "beta2": 0.9, "silent_sgd_phase": False}, {"lr": 5e-2}),
    Case("schedule_free_sgd", {**DECAY, "warmup_steps": 2.0}, {"lr": 2e-3}),
    Case("sgd", {**DECAY, "momentum": 0.9, "dampening": 0.1}, {"lr": 2e-3, "momentum": 0.9}),
    Case("sgd_sai", DECAY, {"lr": 2e-3, "weight_decay": 0.0}),
    Case("sgdp", {**DECAY, "momentum": 0.9, "dampening": 0.1}, {"lr": 2e-3, "momentum": 0.9}),
    Case("sgdw", {"momentum": 0.9, "nesterov": True}, {"lr": 2e-3, "momentum": 0.9, "weight_decay": 0.0}),
    # Inverse roots of nearly singular statistics would multiply rounding by 1 / eps.
    Case("shampoo", {**DECAY, "momentum": 0.9, "every": 2, "eps": 1e-2}, {"lr": 0.5}),
    Case("signsgd", DECAY, {"lr": falling(5e-3)}),
    Case("simplified_ademamix", {**DECAY, "alpha": 2.0}, {"lr": falling(1e-3)}),
    Case("sm3", {**DECAY, "momentum": 0.9, "beta": 0.9}, {"lr": 0.3}),
    Case(
        "soap",
        {"precondition_frequency": 2, "precondition_1d": True},
        {"lr": falling(0.1), "weight_decay": 0.0},
        first_move=2,
    ),
    Case("sofo", {"tangents": 4, "damping": 1e-2}, {"lr": 0.6, "tangents": 6, "damping": 1e-2}),
    Case("sophia_g", {**DECAY, "every": 2, "rho": 4.0}, {"lr": falling(0.1), "weight_decay": 0.0, "every": 1}),
    Case("sophia_h", {**DECAY, "every": 2, "p": 1.0}, {"lr": falling(1.0), "p": 0.1, "every": 1}),
    Case("spam", {**DECAY, "settle": 1, "update_proj_gap": 2, "warmup_steps": 3}, {"lr": 2e-2}),
    Case("sparse_adam", DECAY, {"lr": 2e-2}),
    Case("sparse_sgd", {**DECAY, "momentum": 0.9}, {"lr": 2e-3, "momentum": 0.9}),
    Case("stable_adamw", DECAY, {"lr": 1e-2, "weight_decay": 0.0}),
    Case("stable_spam", {**DECAY, "update_proj_gap": 3}, {"lr": falling(2e-2)}),
    Case("swats", {**DECAY, "tolerance": 0.5}, {"lr": 2e-2}),
    Case("tiger", DECAY, {"lr": falling(5e-3), "weight_decay": 0.0}),
    Case("yogi", DECAY, {"lr": 5e-2}, resting={"initial_accumulator": 0.0}),
]
INTEGERS = (np.int16, np.uint8)  # of quantized state
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
    assert param.shape == shape
    assert param.dtype == dtype
    for slot, first in initial_state(optimizer, start).items():
        array = state[slot]
        assert array.shape == first.shape
        assert array.dtype == first.dtype
        assert first.dtype in (dtype, *INTEGERS) or (first.shape == () and first.dtype == np.float64)
    assert not np.array_equal(param, start)


def test_slots_are_named_once_and_returned_each_step(optimizer, xp, train):
    start, grads = draws(1, (3,))
    _, state = train(optimizer, xp, start, lambda _, i: grads[i], 1)
    assert list(state) == list(initial_state(optimizer, start))
    assert all(slot.isidentifier() for slot in state)
    assert not set(optimizer.init_shared({"": start})) & set(optimizer.init(start))


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


def test_zero_gradient_moves_nothing_without_decay(case, optimizer, xp, train):
    decay = {"weight_decay": 0.0} if hasattr(optimizer, "weight_decay") else {}
    start, _ = draws(1, (4,))
    param, _ = train(replace(optimizer, **decay, **(case.resting or {})), xp, start, lambda p, _: 0 * p, 3)
    assert np.array_equal(param, start) == (case.resting is not None)


@pytest.mark.parametrize("shape", [(16,), (4, 4)], ids=str)
@pytest.mark.parametrize("magnitude", [1e-42, 1e-30, 1e-10, 1e10, 1e30])
def test_extreme_gradients_give_no_nan(optimizer, xp, train, magnitude, shape):
    start, grads = draws(4, shape, np.float32)
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
        for slot in changed[1]:
            np.testing.assert_array_equal(changed[1][slot], rebuilt[1][slot], err_msg=f"{name}, {slot}")


def test_hyperparameters_are_finite_floats_and_leave_the_rate_to_the_schedule(optimizer):
    numbers = optimizer.hyperparameters()
    assert "lr" not in numbers
    assert all(type(value) is float and np.isfinite(value) for value in numbers.values())
    assert optimizer.schedule == Constant(optimizer.lr)


def test_the_rate_follows_the_schedule(case, optimizer, xp, train):
    start, grads = draws(1, (6,))
    warming = replace(optimizer, lr=WarmupCosine(1.0, warmup_steps=4, total_steps=10))
    param, _ = train(warming, xp, start, lambda _, i: grads[i], 1)
    assert np.array_equal(param, start) == case.rests_without_a_rate  # the first rate of a warm-up is 0
    param, _ = train(replace(optimizer, lr=0.25), xp, start, lambda _, i: grads[0], case.first_move)
    assert not np.array_equal(param, start)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_and_torch_agree(case, optimizer, train, dtype):
    start, grads = draws(25, (4, 3), dtype)
    ours = train(optimizer, numpy_namespace, start, lambda _, i: grads[i], 25)
    theirs = train(optimizer, torch_namespace, start, lambda _, i: grads[i], 25)
    # The operations are the same, but sums have another order, and powers and exponentials another last digit.
    tolerance = (1024 if isinstance(optimizer, Collective) else 64) * np.finfo(dtype).eps
    np.testing.assert_allclose(ours[0], theirs[0], rtol=tolerance, atol=tolerance)
    for slot in ours[1]:
        largest = np.abs(ours[1][slot].astype(np.float64)).max()
        np.testing.assert_allclose(ours[1][slot], theirs[1][slot], rtol=tolerance, atol=tolerance * largest)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_as_onnx_it_computes_the_same(case, optimizer, train, ingredients, run_as_onnx, shape, dtype):
    start, grads = draws(4, shape, dtype)
    numbers = {**optimizer.hyperparameters(), "lr": 0.01}
    param, state = train(optimizer, numpy_namespace, start, lambda _, i: grads[i], 3)
    hyper = {name: np.asarray(value) for name, value in numbers.items()}
    given = {**state, **ingredients(optimizer, param, grads[3], 3)}
    inputs = {"param": param, "grad": grads[3], **given, **hyper, "step": np.asarray(4)}

    def program(xp, arrays):
        own_state, own_hyper = ({name: arrays[name] for name in names} for names in (given, hyper))
        moved, updated = optimizer.update(xp, arrays["param"], arrays["grad"], own_state, own_hyper, arrays["step"])
        return {"moved": moved, **{f"next.{slot}": value for slot, value in updated.items()}}

    expected = program(numpy_namespace, inputs)
    alone = optimizer.elementwise and not isinstance(optimizer, Collective)
    tolerance = (4 if alone else 256) * np.finfo(dtype).eps
    for name, result in run_as_onnx(program, inputs).items():
        assert result.dtype == expected[name].dtype
        largest = np.abs(expected[name].astype(np.float64)).max()
        np.testing.assert_allclose(result, expected[name], rtol=tolerance, atol=tolerance * largest, err_msg=name)


def test_elementwise_rules_may_update_joined_parameters(optimizer, xp, train):
    start, grads = draws(5, (12,))
    joined, _ = train(optimizer, xp, start, lambda _, i: grads[i], 5)
    parts = [slice(0, 5), slice(5, 12)]
    apart = [train(optimizer, xp, start[part], lambda _, i, part=part: grads[i, part], 5)[0] for part in parts]
    if optimizer.elementwise and not isinstance(optimizer, Collective):  # two groups would have two shared states
        np.testing.assert_array_max_ulp(joined, np.concatenate(apart), maxulp=2)  # a power may depend on the position


def test_cautious_steps_never_oppose_the_gradient(optimizer, xp, train):
    if type(optimizer).update is Descent.update:
        start, grads = draws(6, (30,))
        rule = replace(optimizer, weight_decay=0.0, cautious=True)
        before, after = (train(rule, xp, start, lambda _, i: grads[i], count)[0] for count in (5, 6))
        assert np.all((before - after) * np.sign(grads[5]) >= 0.0)


def test_converges_on_a_quadratic(case, train):
    rule = OPTIMIZERS[case.name](**case.converging)
    scales, minimum = np.array([1.0, 10.0, 0.1, 100.0]), np.array([1.0, -2.0, 0.5, 0.0])

    def gradient(p, _):
        return scales * (p - minimum)

    def loss(p):
        return 0.5 * np.sum(scales * (p - minimum) ** 2)

    start = np.zeros(4)
    param, _ = train(rule, numpy_namespace, start, gradient, case.steps, curvature=lambda _: scales, loss=loss)
    assert loss(param) < 1e-2 * loss(start)


def test_converges_on_rosenbrock(case, train):
    rule = OPTIMIZERS[case.name](**case.converging)

    def gradient(p, _):
        x, y = p
        return np.array([-2 * (1 - x) - 400 * x * (y - x * x), 200 * (y - x * x)])

    def curvature(p):
        x, y = p
        return np.array([2 - 400 * (y - 3 * x * x), 200.0])

    def loss(p):
        return (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2

    start = np.array([-0.5, 0.5])
    (x, y), _ = train(rule, numpy_namespace, start, gradient, case.steps, curvature=curvature, loss=loss)
    assert loss((x, y)) < 1e-2  # from 8.5


def test_maximize_climbs_as_far_as_it_would_descend(optimizer, xp, train):
    start, grads = draws(5, (6,))
    descending, climbing = replace(optimizer, maximize=False), replace(optimizer, maximize=True)
    down, _ = train(descending, xp, start, lambda _, i: grads[i], 5, loss=lambda _: 2.0)
    up, _ = train(climbing, xp, start, lambda _, i: -grads[i], 5, loss=lambda _: -2.0)
    np.testing.assert_array_equal(up, down)


def test_is_a_value(optimizer):
    assert replace(optimizer) == optimizer
    assert hash(replace(optimizer)) == hash(optimizer)
    assert pickle.loads(pickle.dumps(optimizer)) == optimizer


@pytest.mark.parametrize("lr", [-1e-3, float("nan"), float("inf"), "fast", None])
def test_impossible_learning_rates_are_refused(case, lr):
    with pytest.raises(ConfigurationError, match="lr"):
        OPTIMIZERS[case.name](lr=lr)
