from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgeopt_runtime import HyperparameterError, TrainingSession
from edgeopt_runtime.hyper import Hyperparameters
from edgeopt_runtime.manifest import Hyperparameter


def test_the_defaults_hold_at_first(session):
    assert session.hyperparameters == {"schedule.lr": 0.1, "optimizer.momentum": 0.9}


@pytest.mark.parametrize(
    "change",
    [
        lambda session: session.set_hyper("schedule.lr", 0.02),
        lambda session: session.set_hyper("lr", 0.02),
        lambda session: session.set_hyper(lr=0.02),
        lambda session: session.set_hyper(**{"schedule.lr": np.float32(0.02)}),
    ],
)
def test_a_new_value_holds_from_the_next_step_on(session, reference, make_batches, change):
    first, second, third = make_batches(4, 4, 4)
    session.step(first)
    session.step(second)
    change(session)
    assert session.step(third)["lr"] == pytest.approx(0.02)
    reference = replace(reference.step(**first).step(**second), lr=0.02).step(**third)
    np.testing.assert_allclose(session.parameters()["weight"], reference.state["weight"], rtol=1e-5)


def test_values_survive_saving(session, tmp_path):
    session.set_hyper(lr=0.1 + 1e-17, momentum=1 / 3)
    session.save(tmp_path / "a.edgeopt")
    resumed = TrainingSession.load(tmp_path / "a.edgeopt")
    assert resumed.hyperparameters == session.hyperparameters
    assert resumed.manifest.hyperparameters[0].description == "learning rate"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"rate": 1.0}, "no hyperparameter `rate`; it has schedule.lr, optimizer.momentum"),
        ({"lr": float("nan")}, "`schedule.lr` must be a finite float64"),
        ({"lr": float("inf")}, "must be a finite float64"),
        ({"lr": "fast"}, "must be a number, not 'fast'"),
        ({"lr": 1.0, "schedule.lr": 2.0}, "named twice"),
    ],
)
def test_refused_values_change_nothing(session, values, words):
    before = session.hyperparameters
    with pytest.raises(HyperparameterError, match=words):
        session.set_hyper(momentum=0.5, **values)
    assert session.hyperparameters == before


def test_a_name_needs_a_value(session):
    with pytest.raises(HyperparameterError, match="no value for `lr`"):
        session.set_hyper("lr")


def test_short_names_must_be_unambiguous():
    hyper = Hyperparameters([Hyperparameter("a.eps", "float64", 1.0), Hyperparameter("b.eps", "float64", 1.0)])
    with pytest.raises(HyperparameterError, match=r"`eps` may mean a\.eps or b\.eps"):
        hyper.set({"eps": 2.0})
    hyper.set({"a.eps": 2.0})
    assert hyper.values() == {"a.eps": 2.0, "b.eps": 1.0}


@pytest.mark.parametrize(("dtype", "value"), [("int64", 1.5), ("uint8", -1), ("int8", 300), ("float16", 1e6)])
def test_values_must_fit_the_type(dtype, value):
    hyper = Hyperparameters([Hyperparameter("h", dtype, 1)])
    with pytest.raises(HyperparameterError, match=f"`h` must be .*{dtype}"):
        hyper.set({"h": value})
    hyper.set({"h": 3})
    assert hyper.values() == {"h": 3}
    assert repr(hyper.specs()[0].default) == ("3.0" if dtype == "float16" else "3")
