"""`from_config` against PyTorch and optax themselves, and against Keras's published formulas."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import array_api_compat.numpy as xp
import jax
import numpy as np
import optax
import optax.contrib
import pytest
import torch

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import OPTIMIZERS, SGD, AdamW, Muon, Optimizer, ParameterGroups, from_config
from edgeopt.optimizers.config.keras import KERAS
from edgeopt.optimizers.config.keras_schedules import KERAS_SCHEDULES
from edgeopt.optimizers.config.optax import OPTAX
from edgeopt.optimizers.config.optax_schedules import OPTAX_SCHEDULES
from edgeopt.optimizers.config.torch import TORCH
from edgeopt.optimizers.config.torch_schedules import TORCH_SCHEDULES

STEPS = 12


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    """float64 for JAX, and for the scalar state of torch's optimizers."""
    jax.config.update("jax_enable_x64", True)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
    jax.config.update("jax_enable_x64", False)


@pytest.fixture
def start() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(4, 3))


@pytest.fixture
def grads() -> np.ndarray:
    rng = np.random.default_rng(1)
    grads = rng.normal(size=(STEPS, 4, 3)) * 10.0 ** rng.uniform(-6, 1, (1, 4, 3))
    grads[0, 0] = 0.0
    return grads


@pytest.fixture
def ours(train: Any, start: np.ndarray, grads: np.ndarray) -> Callable[[Optimizer], np.ndarray]:
    return lambda rule: train(rule, xp, start, lambda param, done: grads[done], STEPS)[0]


TORCH_ROWS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.02}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("Adam", {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-5, "weight_decay": 0.1, "amsgrad": True}),
    ("Adam", {"lr": torch.tensor(0.01, dtype=torch.float64)}),
    ("AdamW", {"lr": 0.01, "betas": [0.8, 0.95], "weight_decay": 0.1}),
    ("Adamax", {"weight_decay": 0.1}),
    ("NAdam", {"momentum_decay": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"betas": (0.7, 0.8), "weight_decay": 0.1}),
    ("RMSprop", {"alpha": 0.9, "momentum": 0.5, "centered": True, "eps": 1e-4}),
    ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.2, "eps": 1e-4}),
    ("Adadelta", {"lr": 0.5, "rho": 0.8, "eps": 1e-4}),
    ("Rprop", {"lr": 0.02, "etas": (0.4, 1.3), "step_sizes": (1e-3, 0.1)}),
    ("ASGD", {"lr": 0.05, "lambd": 0.01, "alpha": 0.6, "t0": 3}),
    ("Adafactor", {"lr": 0.05, "beta2_decay": -0.7, "eps": (1e-8, 1e-2), "d": 1.1, "weight_decay": 0.1}),
]


@pytest.mark.parametrize(("name", "options"), TORCH_ROWS)
@pytest.mark.parametrize("form", ["instance", "defaults", "param_groups"])
def test_torch_configurations_give_the_same_training(
    form: str, name: str, options: dict[str, Any], start: np.ndarray, grads: np.ndarray, ours: Any
) -> None:
    param = torch.nn.Parameter(torch.tensor(start))
    optimizer = getattr(torch.optim, name)([param], **options)
    config: Any = optimizer
    if form == "defaults":
        config = {"name": name, "defaults": options}
    if form == "param_groups":
        config = {"name": name, "param_groups": optimizer.state_dict()["param_groups"]}
    for grad in grads:
        param.grad = torch.tensor(grad)
        optimizer.step()
    np.testing.assert_allclose(ours(from_config(config)), param.detach().numpy(), rtol=1e-12, atol=1e-12)


def test_every_torch_converter_reads_all_of_torchs_options() -> None:
    for name in TORCH:
        rule = from_config(getattr(torch.optim, name)([torch.nn.Parameter(torch.zeros(2, 2))]))
        assert type(rule).__name__ == name
        assert rule == OPTIMIZERS[name.lower()](lr=TORCH[name][1])


def test_muon_is_read_with_its_scale() -> None:
    muon = torch.optim.Muon([torch.nn.Parameter(torch.zeros(2, 2))], lr=0.1, adjust_lr_fn="match_rms_adamw", ns_steps=3)
    assert from_config(muon) == Muon(0.1, adjust_lr_fn="match_rms_adamw", ns_steps=3)


def test_groups_of_named_parameters_become_groups() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    named = dict(model.named_parameters())
    weights = {"params": [(name, param) for name, param in named.items() if "weight" in name]}
    others = {"params": [(name, param) for name, param in named.items() if "bias" in name], "weight_decay": 0.0}
    groups_given: list[dict[str, Any]] = [weights, others]
    optimizer = torch.optim.AdamW(groups_given, lr=0.1)
    groups = from_config(optimizer)
    assert isinstance(groups, ParameterGroups)
    assert groups.default == AdamW(0.1)
    (biases,) = groups.groups
    assert biases.optimizer == AdamW(0.1, weight_decay=0.0)
    assert [name for name, param in named.items() if biases.matches(name, param.ndim)] == ["0.bias", "1.bias"]


def test_groups_without_names_are_refused_if_they_differ() -> None:
    groups = [{"lr": 0.1, "params": [0]}, {"lr": 0.2, "params": [1]}]
    with pytest.raises(ConfigurationError, match="named_parameters"):
        from_config({"name": "SGD", "param_groups": groups})
    assert from_config({"name": "SGD", "param_groups": [groups[0], groups[0]]}) == SGD(0.1)


TORCH_SCHEDULE_ROWS: list[tuple[str, dict[str, Any]]] = [
    ("StepLR", {"step_size": 3, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [2, 5, 5], "gamma": 0.3}),
    ("ConstantLR", {"factor": 0.25, "total_iters": 4}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("LinearLR", {"start_factor": 0.2, "end_factor": 0.8, "total_iters": 6}),
    ("PolynomialLR", {"total_iters": 8, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 11, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 0.02}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 3, "step_size_down": 2, "cycle_momentum": False}),
    ("OneCycleLR", {"max_lr": 0.3, "total_steps": 12, "cycle_momentum": False}),
]


def torch_rates(make: Callable[[torch.optim.Optimizer], Any], lr: float = 0.1) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    scheduler = make(optimizer)
    rates = []
    for _ in range(STEPS):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return rates


def our_rates(rule: Any) -> list[float]:
    numbers = {name: np.asarray(value) for name, value in rule.schedule.hyperparameters().items()}
    return [float(rule.schedule(xp, numbers, np.asarray(done))) for done in range(STEPS)]


@pytest.mark.parametrize(("name", "kwargs"), TORCH_SCHEDULE_ROWS)
def test_torch_schedulers_give_the_same_rates(name: str, kwargs: dict[str, Any]) -> None:
    scheduler = {"name": name, "kwargs": kwargs}
    rule = from_config({"name": "SGD", "defaults": {"lr": 0.1}, "scheduler": scheduler})
    expected = torch_rates(lambda optimizer: getattr(torch.optim.lr_scheduler, name)(optimizer, **kwargs))
    np.testing.assert_allclose(our_rates(rule), expected, rtol=1e-12)


def test_composed_torch_schedulers_give_the_same_rates() -> None:
    parts: list[tuple[str, dict[str, Any]]] = [
        ("LinearLR", {"start_factor": 0.1, "total_iters": 4}),
        ("ExponentialLR", {"gamma": 0.8}),
    ]
    configs = [{"name": name, "kwargs": kwargs} for name, kwargs in parts]
    kinds = torch.optim.lr_scheduler

    def made(optimizer: Any) -> list[Any]:
        return [getattr(kinds, name)(optimizer, **kwargs) for name, kwargs in parts]

    for config, expected in [
        (
            {"name": "SequentialLR", "kwargs": {"schedulers": configs, "milestones": [4]}},
            torch_rates(lambda optimizer: kinds.SequentialLR(optimizer, made(optimizer), [4])),
        ),
        (
            {"name": "ChainedScheduler", "kwargs": {"schedulers": configs}},
            torch_rates(lambda optimizer: kinds.ChainedScheduler(made(optimizer))),
        ),
    ]:
        rule = from_config({"name": "SGD", "defaults": {"lr": 0.1}, "scheduler": config})
        np.testing.assert_allclose(our_rates(rule), expected, rtol=1e-12)


def test_every_torch_schedule_has_a_row() -> None:
    assert {name for name, _ in TORCH_SCHEDULE_ROWS} | {"SequentialLR", "ChainedScheduler"} == set(TORCH_SCHEDULES)


OPTAX_ROWS: list[tuple[str, dict[str, Any]]] = [
    ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}),
    ("sgd", {"learning_rate": 0.1}),
    ("adam", {"learning_rate": 0.01, "b1": 0.8, "b2": 0.95, "eps": 1e-5}),
    ("adam", {"learning_rate": 0.01, "nesterov": True}),
    ("adamw", {"learning_rate": 0.01, "weight_decay": 0.1}),
    ("nadam", {"learning_rate": 0.01}),
    ("nadamw", {"learning_rate": 0.01, "b1": 0.8}),
    ("adamax", {"learning_rate": 0.01}),
    ("adamaxw", {"learning_rate": 0.01, "weight_decay": 0.1}),
    ("adagrad", {"learning_rate": 0.1}),
    ("adadelta", {"learning_rate": 0.5, "rho": 0.8}),
    ("adadelta", {"learning_rate": 0.5, "weight_decay": 0.1}),
    ("rmsprop", {"learning_rate": 0.01}),
    ("rmsprop", {"learning_rate": 0.01, "momentum": 0.9, "centered": True, "eps": 1e-3}),
    ("rmsprop", {"learning_rate": 0.01, "eps_in_sqrt": False}),
    ("lion", {"learning_rate": 0.01, "weight_decay": 0.1}),
    ("lamb", {"learning_rate": 0.01, "weight_decay": 0.1}),
    ("yogi", {"learning_rate": 0.01}),
    ("sign_sgd", {"learning_rate": 0.01}),
    ("ademamix", {"learning_rate": 0.01, "weight_decay": 0.1}),
    ("simplified_ademamix", {"learning_rate": 0.01, "alpha": 2.0}),
    ("adopt", {"learning_rate": 0.01}),
]


def optax_run(optimizer: Any, start: np.ndarray, grads: np.ndarray) -> np.ndarray:
    params = jax.numpy.asarray(start)
    state = optimizer.init(params)
    for grad in grads:
        updates, state = optimizer.update(jax.numpy.asarray(grad), state, params)
        params = optax.apply_updates(params, updates)
    return np.asarray(params)


@pytest.mark.parametrize(("name", "kwargs"), OPTAX_ROWS)
def test_optax_configurations_give_the_same_training(
    name: str, kwargs: dict[str, Any], start: np.ndarray, grads: np.ndarray, ours: Any
) -> None:
    make = getattr(optax, name, None) or getattr(optax.contrib, name)
    expected = optax_run(make(**kwargs), start, grads)
    np.testing.assert_allclose(ours(from_config({"name": name, "kwargs": kwargs})), expected, rtol=1e-11, atol=1e-11)


def test_every_optax_converter_has_a_row() -> None:
    assert {name for name, _ in OPTAX_ROWS} == set(OPTAX)


OPTAX_SCHEDULE_ROWS: list[tuple[str, dict[str, Any]]] = [
    ("constant_schedule", {"value": 0.2}),
    ("cosine_decay_schedule", {"init_value": 0.2, "decay_steps": 7, "alpha": 0.1}),
    ("exponential_decay", {"init_value": 0.2, "transition_steps": 3, "decay_rate": 0.7}),
    ("exponential_decay", {"init_value": 0.2, "transition_steps": 3, "decay_rate": 0.7, "staircase": True}),
    (
        "exponential_decay",
        {"init_value": 0.2, "transition_steps": 2, "decay_rate": 0.5, "transition_begin": 3, "end_value": 0.03},
    ),
    ("polynomial_schedule", {"init_value": 0.2, "end_value": 0.05, "power": 2.0, "transition_steps": 6}),
    ("linear_schedule", {"init_value": 0.01, "end_value": 0.2, "transition_steps": 6, "transition_begin": 2}),
    ("warmup_constant_schedule", {"init_value": 0.01, "peak_value": 0.2, "warmup_steps": 5}),
    (
        "warmup_cosine_decay_schedule",
        {"init_value": 0.01, "peak_value": 0.2, "warmup_steps": 4, "decay_steps": 10, "end_value": 0.02},
    ),
    ("piecewise_constant_schedule", {"init_value": 0.2, "boundaries_and_scales": {3: 0.5, 7: 0.1}}),
]


def optax_rates(schedule: Any) -> list[float]:
    return [float(schedule(done)) for done in range(STEPS)]


@pytest.mark.parametrize(("name", "kwargs"), OPTAX_SCHEDULE_ROWS)
def test_optax_schedules_give_the_same_rates(name: str, kwargs: dict[str, Any]) -> None:
    rate = {"name": name, "kwargs": kwargs}
    rule = from_config({"name": "adam", "kwargs": {"learning_rate": rate}})
    np.testing.assert_allclose(our_rates(rule), optax_rates(getattr(optax, name)(**kwargs)), rtol=1e-7)


def test_joined_optax_schedules_give_the_same_rates() -> None:
    parts = OPTAX_SCHEDULE_ROWS[0], OPTAX_SCHEDULE_ROWS[1]
    config = {
        "name": "join_schedules",
        "kwargs": {"schedules": [{"name": name, "kwargs": kwargs} for name, kwargs in parts], "boundaries": [4]},
    }
    expected = optax.join_schedules([getattr(optax, name)(**kwargs) for name, kwargs in parts], [4])
    rule = from_config({"name": "adam", "kwargs": {"learning_rate": config}})
    np.testing.assert_allclose(our_rates(rule), optax_rates(expected), rtol=1e-7)
    assert {name for name, _ in OPTAX_SCHEDULE_ROWS} | {"join_schedules"} == set(OPTAX_SCHEDULES)


KerasStep = Callable[[dict[str, Any], np.ndarray, int, dict[str, Any]], np.ndarray]


def keras_sgd(s: dict[str, Any], g: np.ndarray, t: int, c: dict[str, Any]) -> np.ndarray:
    s["m"] = c["momentum"] * s.get("m", 0.0) - c["learning_rate"] * g
    return c["momentum"] * s["m"] - c["learning_rate"] * g if c["nesterov"] else s["m"]


def keras_adam(s: dict[str, Any], g: np.ndarray, t: int, c: dict[str, Any]) -> np.ndarray:
    alpha = c["learning_rate"] * np.sqrt(1 - c["beta_2"] ** t) / (1 - c["beta_1"] ** t)
    s["m"] = s.get("m", 0.0) + (g - s.get("m", 0.0)) * (1 - c["beta_1"])
    s["v"] = s.get("v", 0.0) + (g**2 - s.get("v", 0.0)) * (1 - c["beta_2"])
    v = s["v"]
    if c["amsgrad"]:
        v = s["vhat"] = np.maximum(s.get("vhat", 0.0), v)
    return -(s["m"] * alpha) / (np.sqrt(v) + c["epsilon"])


def keras_nadam(s: dict[str, Any], g: np.ndarray, t: int, c: dict[str, Any]) -> np.ndarray:
    now, ahead = (c["beta_1"] * (1 - 0.5 * 0.96**k) for k in (t, t + 1))
    s["product"] = s.get("product", 1.0) * now
    s["m"] = s.get("m", 0.0) + (g - s.get("m", 0.0)) * (1 - c["beta_1"])
    s["v"] = s.get("v", 0.0) + (g**2 - s.get("v", 0.0)) * (1 - c["beta_2"])
    mean = ahead * s["m"] / (1 - s["product"] * ahead) + (1 - now) * g / (1 - s["product"])
    return -mean * c["learning_rate"] / (np.sqrt(s["v"] / (1 - c["beta_2"] ** t)) + c["epsilon"])


def keras_rmsprop(s: dict[str, Any], g: np.ndarray, t: int, c: dict[str, Any]) -> np.ndarray:
    s["v"] = c["rho"] * s.get("v", 0.0) + (1 - c["rho"]) * g**2
    denominator = s["v"] + c["epsilon"]
    if c["centered"]:
        s["a"] = c["rho"] * s.get("a", 0.0) + (1 - c["rho"]) * g
        denominator = s["v"] - s["a"] ** 2 + c["epsilon"]
    s["m"] = c["momentum"] * s.get("m", 0.0) + c["learning_rate"] * g / np.sqrt(denominator)
    return -s["m"]


def keras_adagrad(s: dict[str, Any], g: np.ndarray, t: int, c: dict[str, Any]) -> np.ndarray:
    s["a"] = s.get("a", c["initial_accumulator_value"]) + g**2
    return -c["learning_rate"] * g / np.sqrt(s["a"] + c["epsilon"])


def keras_adadelta(s: dict[str, Any], g: np.ndarray, t: int, c: dict[str, Any]) -> np.ndarray:
    s["g"] = c["rho"] * s.get("g", 0.0) + (1 - c["rho"]) * g**2
    delta = -np.sqrt(s.get("d", 0.0) + c["epsilon"]) * g / np.sqrt(s["g"] + c["epsilon"])
    s["d"] = c["rho"] * s.get("d", 0.0) + (1 - c["rho"]) * delta**2
    return c["learning_rate"] * delta


def keras_lion(s: dict[str, Any], g: np.ndarray, t: int, c: dict[str, Any]) -> np.ndarray:
    m = s.get("m", 0.0)
    s["m"] = c["beta_2"] * m + (1 - c["beta_2"]) * g
    return -c["learning_rate"] * np.sign(c["beta_1"] * m + (1 - c["beta_1"]) * g)


# What get_config of every Keras optimizer holds beside its own.
KERAS_BASE: dict[str, Any] = {
    "learning_rate": 0.01,
    "weight_decay": None,
    "clipnorm": None,
    "global_clipnorm": None,
    "clipvalue": None,
    "use_ema": False,
    "ema_momentum": 0.99,
    "ema_overwrite_frequency": None,
    "loss_scale_factor": None,
    "gradient_accumulation_steps": None,
}
ADAM = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}
RMS = {"rho": 0.9, "momentum": 0.0, "epsilon": 1e-7, "centered": False}
KERAS_ROWS: list[tuple[str, KerasStep, dict[str, Any]]] = [
    ("SGD", keras_sgd, {"momentum": 0.0, "nesterov": False}),
    ("SGD", keras_sgd, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("Adam", keras_adam, {**ADAM, "amsgrad": False}),
    ("Adam", keras_adam, {**ADAM, "amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", keras_adam, {**ADAM, "amsgrad": False, "weight_decay": 0.004}),
    ("Nadam", keras_nadam, ADAM),
    ("RMSprop", keras_rmsprop, RMS),
    ("RMSprop", keras_rmsprop, {**RMS, "momentum": 0.9, "centered": True, "epsilon": 1e-3}),
    ("Adagrad", keras_adagrad, {"initial_accumulator_value": 0.1, "epsilon": 1e-7}),
    ("Adadelta", keras_adadelta, {"rho": 0.95, "epsilon": 1e-7}),
    ("Lion", keras_lion, {"beta_1": 0.9, "beta_2": 0.99}),
]


@pytest.mark.parametrize(("name", "step", "own"), KERAS_ROWS)
@pytest.mark.parametrize("serialized", [True, False])
def test_keras_configurations_follow_the_published_formulas(
    serialized: bool, name: str, step: KerasStep, own: dict[str, Any], start: np.ndarray, grads: np.ndarray, ours: Any
) -> None:
    config = {"name": name.lower(), **KERAS_BASE, **own}
    param, state = start, dict[str, Any]()
    for t, grad in enumerate(grads, 1):
        param = param - param * (config["weight_decay"] or 0.0) * config["learning_rate"]
        param = param + step(state, grad, t, config)
    form = {"module": "keras.optimizers", "class_name": name, "config": config, "registered_name": None}
    if not serialized and name == "Nadam":  # which has the options of Adamax
        with pytest.raises(ConfigurationError, match="serialize"):
            from_config(config)
        return
    np.testing.assert_allclose(ours(from_config(form if serialized else config)), param, rtol=1e-11, atol=1e-12)


def test_every_keras_converter_has_a_row() -> None:
    assert {name.lower() for name, _, _ in KERAS_ROWS} == set(KERAS)


KERAS_SCHEDULE_ROWS: list[tuple[str, dict[str, Any], Callable[[int], float]]] = [
    (
        "ExponentialDecay",
        {"initial_learning_rate": 0.2, "decay_steps": 3, "decay_rate": 0.7, "staircase": False},
        lambda t: 0.2 * 0.7 ** (t / 3),
    ),
    (
        "ExponentialDecay",
        {"initial_learning_rate": 0.2, "decay_steps": 3, "decay_rate": 0.7, "staircase": True},
        lambda t: 0.2 * 0.7 ** (t // 3),
    ),
    (
        "PiecewiseConstantDecay",
        {"boundaries": [3, 7], "values": [0.2, 0.1, 0.05]},
        lambda t: 0.2 if t <= 3 else 0.1 if t <= 7 else 0.05,
    ),
    (
        "PolynomialDecay",
        {"initial_learning_rate": 0.2, "decay_steps": 8, "end_learning_rate": 0.01, "power": 2.0, "cycle": False},
        lambda t: 0.19 * (1 - min(t, 8) / 8) ** 2 + 0.01,
    ),
    (
        "PolynomialDecay",
        {"initial_learning_rate": 0.01, "decay_steps": 8, "end_learning_rate": 0.2, "power": 1.0, "cycle": False},
        lambda t: -0.19 * (1 - min(t, 8) / 8) + 0.2,
    ),
    (
        "InverseTimeDecay",
        {"initial_learning_rate": 0.2, "decay_steps": 4, "decay_rate": 0.5, "staircase": False},
        lambda t: 0.2 / (1 + 0.5 * t / 4),
    ),
    (
        "CosineDecay",
        {"initial_learning_rate": 0.2, "decay_steps": 9, "alpha": 0.1, "warmup_target": None, "warmup_steps": 0},
        lambda t: 0.2 * (0.9 * 0.5 * (1 + np.cos(np.pi * min(t, 9) / 9)) + 0.1),
    ),
    (
        "CosineDecay",
        {"initial_learning_rate": 0.02, "decay_steps": 6, "alpha": 0.1, "warmup_target": 0.2, "warmup_steps": 4},
        lambda t: 0.02 + 0.18 * t / 4 if t < 4 else 0.2 * (0.9 * 0.5 * (1 + np.cos(np.pi * min(t - 4, 6) / 6)) + 0.1),
    ),
    (
        "CosineDecayRestarts",
        {"initial_learning_rate": 0.2, "first_decay_steps": 3, "t_mul": 2.0, "m_mul": 1.0, "alpha": 0.1},
        lambda t: (
            0.2
            * (0.9 * 0.5 * (1 + np.cos(np.pi * (t / 3 if t < 3 else (t - 3) / 6 % 1 if t < 9 else (t - 9) / 12))) + 0.1)
        ),
    ),
]


@pytest.mark.parametrize(("name", "config", "rate"), KERAS_SCHEDULE_ROWS)
def test_keras_schedules_follow_the_published_formulas(
    name: str, config: dict[str, Any], rate: Callable[[int], float]
) -> None:
    serialized = {
        "module": "keras.optimizers.schedules",
        "class_name": name,
        "config": {**config, "name": name},
        "registered_name": None,
    }
    rule = from_config({"class_name": "Adam", "config": {"name": "adam", "learning_rate": serialized}})
    np.testing.assert_allclose(our_rates(rule), [rate(t) for t in range(STEPS)], rtol=1e-12)


def test_every_keras_schedule_has_a_row() -> None:
    assert {name for name, _, _ in KERAS_SCHEDULE_ROWS} == set(KERAS_SCHEDULES)


class Lamb:
    """Looks like a Keras optimizer."""

    def get_config(self) -> dict[str, Any]:
        return {"name": "lamb", "learning_rate": 0.1}


REFUSED: list[tuple[Any, str]] = [
    ({"name": "AdamW", "defaults": {"lr": 0.1, "warmup": 3}}, "warmup=3"),
    ({"name": "SparseAdam", "defaults": {}}, "SparseAdam"),
    ({"name": "AdamW", "defaults": {"lr": "fast"}}, "`lr` must be a number"),
    ({"name": "AdamW", "defaults": {"betas": 0.9}}, "two values"),
    ({"name": "AdamW", "defaults": {"amsgrad": 1}}, "True or False"),
    ({"name": "AdamW", "defaults": {}, "transforms": []}, "transforms"),
    ({"name": "AdamW", "param_groups": []}, "no parameter group"),
    ({"name": "SGD", "defaults": {}, "scheduler": {"name": "LambdaLR", "kwargs": {}}}, "LambdaLR"),
    ({"name": "SGD", "defaults": {}, "scheduler": {"name": "StepLR", "kwargs": {"step_size": 2.5}}}, "whole number"),
    ({"name": "SGD", "defaults": {}, "scheduler": {"name": "StepLR", "kwargs": {"step_size": 2, "x": 1}}}, "x=1"),
    (
        {"name": "SGD", "defaults": {}, "scheduler": {"name": "OneCycleLR", "kwargs": {"max_lr": 1, "total_steps": 9}}},
        "cycle_momentum",
    ),
    ({"name": "adam", "kwargs": {"learning_rate": 0.1, "eps_root": 1e-8}}, "eps_root"),
    ({"name": "adam", "kwargs": {}}, "learning_rate"),
    ({"name": "adam", "kwargs": {"learning_rate": lambda step: 0.1}}, "name and arguments"),
    ({"name": "adamw", "kwargs": {"learning_rate": 0.1, "mask": {}}}, "weight_decay"),
    ({"name": "amsgrad", "kwargs": {"learning_rate": 0.1}}, "amsgrad"),
    ({"name": "adam", "kwargs": {"learning_rate": {"name": "sgdr_schedule", "kwargs": {}}}}, "sgdr_schedule"),
    ({"class_name": "Adam", "config": {"learning_rate": 0.1, "global_clipnorm": 1.0}}, "ClipByGlobalNorm"),
    ({"class_name": "Adam", "config": {"learning_rate": 0.1, "use_ema": True}}, "averages the weights"),
    ({"class_name": "Ftrl", "config": {}}, "ftrl"),
    (Lamb(), "test_config.Lamb is a class of its own"),
    ({"module": "keras.optimizers", "class_name": "Lamb", "config": {}}, "lamb"),
    ({"module": "mine", "class_name": "Adam", "config": {}, "registered_name": "mine>Adam"}, "mine.Adam is a class of"),
    ({"name": "adam", "learning_rate": 0.1, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}, "several classes"),
    ({"name": "adam", "learning_rate": 0.1}, "no option may be those of several"),
    ({"class_name": "Adam", "config": {"learning_rate": {"class_name": "LogNormal", "config": {}}}}, "LogNormal"),
    (
        {
            "class_name": "SGD",
            "config": {
                "momentum": 0.9,
                "learning_rate": {"class_name": "CosineDecay", "config": KERAS_SCHEDULE_ROWS[6][1]},
            },
        },
        "constant rate",
    ),
    ({"lr": 0.1}, "which framework"),
    (0.1, "float"),
]


@pytest.mark.parametrize(("config", "why"), REFUSED)
def test_what_has_no_equal_is_refused(config: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        from_config(config)


def test_the_name_of_a_keras_optimizer_is_its_users() -> None:
    """`get_config` holds the name of the instance: "adam", "adam_1" or anything, of whatever class."""
    for name, _, own in KERAS_ROWS:
        if name == "Nadam":
            continue
        config = {**KERAS_BASE, **own}
        whole = from_config({"class_name": name, "config": config})
        for given in (name, "adam", "rm_sprop", "adam_w_7", "my optimizer"):
            assert from_config({"name": given, **config}) == whole


def test_a_class_of_another_package_is_not_taken_for_that_of_its_name() -> None:
    """As bitsandbytes has an AdamW, and transformers once had."""
    another = type("AdamW", (torch.optim.AdamW,), {})
    with pytest.raises(ConfigurationError, match=r"test_config\.AdamW is a class of its own"):
        from_config(another([torch.nn.Parameter(torch.zeros(2))]))


# Every option away from its default, of every class that has an equal: another rule or a refusal, never the same rule.
TORCH_VALUES: dict[str, Any] = {
    "lr": 0.25, "weight_decay": 0.125, "betas": (0.5, 0.75), "eps": 1e-3,
    "momentum": 0.5, "dampening": 0.25, "alpha": 0.5, "rho": 0.5, "lr_decay": 0.5, "initial_accumulator_value": 0.5,
    "momentum_decay": 0.5, "etas": (0.25, 1.5), "step_sizes": (1e-3, 1.0), "lambd": 0.5, "t0": 5.0, "beta2_decay": -0.5,
    "d": 2.0, "ns_coefficients": (3.0, -4.0, 2.0), "ns_steps": 3, "adjust_lr_fn": "match_rms_adamw",
}  # fmt: skip
HOW_NOT_WHAT = {"foreach", "fused", "capturable", "differentiable"}


@pytest.mark.parametrize("name", TORCH)
def test_every_option_of_torch_counts(name: str) -> None:
    cls = getattr(torch.optim, name)
    defaults = cls([torch.nn.Parameter(torch.zeros(2, 2))]).defaults
    plain = from_config({"name": name, "defaults": defaults})
    for option, value in defaults.items():
        if option in HOW_NOT_WHAT:
            assert from_config({"name": name, "defaults": {**defaults, option: True}}) == plain
            continue
        other = not value if isinstance(value, bool) else TORCH_VALUES[option]
        if isinstance(value, tuple) and option == "eps":
            other = (1e-3, 1e-2)
        # Nesterov's needs a momentum, and there is nothing to dampen without one.
        rest = {**defaults, "momentum": 0.5} if name == "SGD" and option in ("nesterov", "dampening") else defaults
        assert other != value
        try:
            changed = from_config(
                {"name": name, "defaults": {**rest, option: not value if isinstance(value, bool) else other}}
            )
        except ConfigurationError as error:
            assert option in str(error)  # noqa: PT017 # either of both may be right
            continue
        assert changed != from_config({"name": name, "defaults": rest})


KERAS_VALUES: dict[str, Any] = {
    "learning_rate": 0.25, "weight_decay": 0.125, "clipnorm": 1.0, "global_clipnorm": 1.0, "clipvalue": 1.0,
    "use_ema": True, "loss_scale_factor": 2.0, "gradient_accumulation_steps": 4, "beta_1": 0.5, "beta_2": 0.5,
    "epsilon": 2e-3, "amsgrad": True, "momentum": 0.5, "nesterov": True, "rho": 0.5, "centered": True,
    "initial_accumulator_value": 0.5, "unknown": 1,
}  # fmt: skip


@pytest.mark.parametrize(("name", "own"), [(name, own) for name, _, own in KERAS_ROWS])
def test_every_option_of_keras_counts(name: str, own: dict[str, Any]) -> None:
    config = {**KERAS_BASE, **own, **({"momentum": 0.25} if name == "SGD" else {})}
    whole = from_config({"class_name": name, "config": config})
    for option in {**config, "unknown": 0}:
        if option in ("ema_momentum", "ema_overwrite_frequency"):  # which mean nothing without use_ema
            continue
        value = KERAS_VALUES[option]
        changed = {**config, option: not config[option] if isinstance(value, bool) else value}
        try:
            rule = from_config({"class_name": name, "config": changed})
        except ConfigurationError as error:
            assert option in str(error)  # noqa: PT017 # either of both may be right
            continue
        assert rule != whole, option


@pytest.mark.parametrize("name", OPTAX)
def test_every_argument_of_optax_counts(name: str) -> None:
    function = getattr(optax, name, None) or getattr(optax.contrib, name)
    values: dict[str, Any] = {
        "learning_rate": 0.25, "b1": 0.5, "b2": 0.5, "b3": 0.5, "eps": 2e-3, "eps_root": 1e-3, "mu_dtype": "float32",
        "weight_decay": 0.125, "mask": {}, "weight_decay_mask": {}, "nesterov": True, "momentum": 0.5, "decay": 0.5,
        "accumulator_dtype": "float32", "initial_scale": 1.0, "centered": True, "bias_correction": True, "rho": 0.5,
        "eps_in_sqrt": False, "initial_accumulator_value": 0.5, "alpha": 2.0, "use_clipping": False,
    }  # fmt: skip
    rest = {"learning_rate": 0.1, **({"momentum": 0.25} if name in ("sgd", "rmsprop") else {})}
    plain = from_config({"name": name, "kwargs": rest})
    for argument, parameter in inspect.signature(function).parameters.items():
        default = parameter.default
        value = values.get(argument, "another")
        changed = not default if isinstance(default, bool) else value
        try:
            rule = from_config({"name": name, "kwargs": {**rest, argument: changed}})
        except ConfigurationError as error:
            assert argument in str(error)  # noqa: PT017 # either of both may be right
            continue
        assert rule != plain, argument
