"""What the base classes do for a rule that is not ours."""

from __future__ import annotations

from dataclasses import field, make_dataclass
from typing import Any

import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import Descent
from edgeopt.schedules import Schedule


@pytest.mark.parametrize("number", [float, "float"], ids=["evaluated", "postponed"])
def test_numbers_are_found_however_annotations_are_kept(number, train, xp):
    def delta(self, xp, param, grad, state, hyper, step):
        return xp.astype(hyper["lr"] * hyper["factor"], param.dtype) * grad, {}

    fields: list[Any] = [("factor", number, field(default=2.0)), ("beta", number, field(default=0.5))]
    cls: Any = make_dataclass("Own", fields, bases=(Descent,), namespace={"delta": delta}, frozen=True, kw_only=True)
    assert cls().hyperparameters() == {"factor": 2.0, "beta": 0.5}
    for wrong in ({"factor": -1.0}, {"beta": 1.0}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            cls(**wrong)
    moved, _ = train(cls(lr=0.25), xp, np.ones(3), lambda p, _: 3.0 * p, 1)
    np.testing.assert_array_equal(moved, np.ones(3) - 0.25 * 2.0 * 3.0)


@pytest.mark.parametrize("number", [float, "float"], ids=["evaluated", "postponed"])
def test_so_are_those_of_schedules(number):
    fields: list[Any] = [("lr", number, field(default=0.1)), ("warmup", int, field(default=3))]
    namespace = {"__call__": lambda self, xp, hyper, step: hyper["lr"]}
    cls: Any = make_dataclass("Own", fields, bases=(Schedule,), namespace=namespace, frozen=True)
    assert cls().hyperparameters() == {"lr": 0.1, "warmup": 3.0}
