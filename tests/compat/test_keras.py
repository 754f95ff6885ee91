"""Keras's settings without Keras; the formulas are tested with `from_config`."""

from __future__ import annotations

import pytest

import edgeopt
from edgeopt.compat.keras import optimizer_from_config, schedule_from_config
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import Adam
from edgeopt.schedules import Exponential

SCHEDULE = {
    "module": "keras.optimizers.schedules",
    "class_name": "ExponentialDecay",
    "config": {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5, "staircase": False, "name": "x"},
    "registered_name": None,
}


def test_an_optimizer_and_its_schedule_are_read() -> None:
    rule = optimizer_from_config(
        {"class_name": "Adam", "config": {"learning_rate": SCHEDULE, "beta_1": 0.8, "epsilon": 1e-6}}
    )
    assert rule == Adam(Exponential(0.1, 0.5, 10), beta1=0.8, eps=1e-6, eps_hat=True, decay="before")
    assert schedule_from_config(SCHEDULE) == rule.schedule
    assert edgeopt.compat.keras.optimizer_from_config is optimizer_from_config


def test_what_has_no_equal_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="ClipByValue"):
        optimizer_from_config({"class_name": "Adam", "config": {"learning_rate": 0.1, "clipvalue": 1.0}})
    with pytest.raises(ConfigurationError, match="Unknown"):
        schedule_from_config({"class_name": "Unknown"})


def test_the_packages_names_are_its_modules() -> None:
    assert dir(edgeopt.compat) == ["keras", "optax", "torch"]
    with pytest.raises(AttributeError, match="tensorflow"):
        edgeopt.compat.tensorflow  # noqa: B018  # the access is the test
