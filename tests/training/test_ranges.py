"""What the constructors of rules, schedules and transforms refuse, a device refuses too, and nothing else."""

from __future__ import annotations

import math
import runpy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgeopt
from edgeopt.errors import ConfigurationError
from edgeopt.losses import MSE
from edgeopt.optimizers import OPTIMIZERS, SGD, AdamW, Averaged, Group, Lookahead, Mechanic
from edgeopt.schedules import Linear, Sequential, WarmupLinear
from edgeopt.transforms import ClipByGlobalNorm, ClipByValue
from edgeopt_runtime import HyperparameterError, ManifestError
from edgeopt_runtime.hyper import Hyperparameters
from edgeopt_runtime.manifest import Hyperparameter
from edgeopt_runtime.parsing import parse_manifest
from edgeopt_runtime.ranges import Range

PROBES = (-1.0, -0.0, 0.0, 1e-60, 0.5, 1 - 1e-12, 1.0, 1.5, 1e30, math.inf, -math.inf, math.nan)
TESTS = Path(__file__).parents[1]


def components() -> Iterator[Any]:
    for case in runpy.run_path(str(TESTS / "optimizers" / "test_contract.py"))["CASES"]:
        yield pytest.param(OPTIMIZERS[case.name](**case.settings), id=case.name)
    for name, schedule in runpy.run_path(str(TESTS / "schedules" / "test_schedules.py"))["EXAMPLES"].items():
        yield pytest.param(schedule, id=name)
    for transform in (ClipByGlobalNorm(1.0), ClipByValue(1.0)):
        yield pytest.param(transform, id=type(transform).__name__)
    for rule in (Lookahead(AdamW()), Averaged(AdamW()), Mechanic(SGD(0.1))):
        yield pytest.param(rule, id=type(rule).__name__)


def refused_by_constructor(component: Any, field: str, value: float) -> bool:
    """Whether the number itself is out of its range; conditions on several numbers have other words."""
    try:
        replace(component, **{field: value})
    except ConfigurationError as error:
        return str(error).startswith(f"{field} must be ")
    return False


@pytest.mark.parametrize("component", list(components()))
def test_the_device_refuses_what_the_constructor_refuses(component: Any) -> None:
    ranges, fields = component.ranges(), set(vars(component))
    for name, default in component.hyperparameters().items():
        field = name.rpartition(".")[2]
        numbers = Hyperparameters([Hyperparameter(name, "float64", default, "", ranges.get(name))])
        # The numbers of what a component is made of are looked at where they belong.
        for probe in (
            PROBES if field in fields and name.rpartition(".")[0] in ("", type(component).__name__.lower()) else ()
        ):
            try:
                numbers.set({name: probe})
                refused = False
            except HyperparameterError:
                refused = True
            assert refused is refused_by_constructor(component, field, probe), (name, probe)


def test_the_numbers_of_parts_keep_their_ranges() -> None:
    inner = Lookahead(AdamW())
    assert inner.ranges() == {**AdamW().ranges(), "lookahead.alpha": Range(at_least=0, at_most=1)}
    parts = Sequential((Linear(0.1), WarmupLinear(0.1, 2, 9)), milestones=(5,))
    assert parts.ranges()["0.lr"] == parts.ranges()["1.lr"] == Range(at_least=0)
    assert len(parts.ranges()) == len(parts.hyperparameters())


@pytest.fixture(scope="module")
def bundle() -> edgeopt.Bundle:
    return edgeopt.export(
        torch.nn.Linear(4, 3),
        torch.zeros(2, 4),
        loss=MSE(),
        optimizer=[Group("bias", lr_multiplier=0.5, name="bias"), AdamW(WarmupLinear(1e-2, 2, 9))],
        transforms=[ClipByGlobalNorm(1.0)],
        check=False,
    )


def test_every_number_of_a_bundle_has_its_range(bundle: edgeopt.Bundle) -> None:
    ranges = {spec.name: str(spec.range) for spec in bundle.manifest.hyperparameters}
    assert ranges["optimizer.beta1"] == "in [0, 1)"
    assert ranges["clip_by_global_norm.max_norm"] == ranges["optimizer.bias.lr_multiplier"] == "at least 0"
    assert "None" not in ranges.values()
    parsed = parse_manifest(bundle.manifest.to_json())
    assert parsed.hyperparameters == bundle.manifest.hyperparameters


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schedule.lr", -1.0),
        ("optimizer.beta1", 1.0),
        ("optimizer.beta2", 0.99999999999),
        ("optimizer.eps", -1e-8),
        ("optimizer.weight_decay", math.nan),
        ("clip_by_global_norm.max_norm", -1.0),
    ],
)
def test_nothing_is_set_if_one_value_is_out_of_its_range(bundle: edgeopt.Bundle, name: str, value: float) -> None:
    session = bundle.session()
    before = session.hyperparameters
    with pytest.raises(HyperparameterError, match=f"`{name}` must be"):
        session.set_hyper(**{"optimizer.bias.lr_multiplier": 2.0, name: value})
    assert session.hyperparameters == before
    session.step((np.ones((2, 4), np.float32), np.zeros((2, 3), np.float32)))


def test_a_default_out_of_its_own_range_is_refused(bundle: edgeopt.Bundle) -> None:
    numbers = tuple(
        replace(spec, default=1.5) if spec.name == "optimizer.beta1" else spec
        for spec in bundle.manifest.hyperparameters
    )
    text = replace(bundle.manifest, hyperparameters=numbers).to_json()
    with pytest.raises(ManifestError, match=r"hyperparameters\[\d\].default` must be in \[0, 1\)"):
        parse_manifest(text)


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ({}, "finite"),
        ({"above": 0.0}, "above 0"),
        ({"at_most": 2.0}, "at most 2"),
        ({"below": 2.0}, "below 2"),
        ({"above": 0.0, "at_most": 1.0}, "in (0, 1]"),
    ],
)
def test_ranges_say_what_they_are(ends: dict[str, float], words: str) -> None:
    assert str(Range(**ends)) == words


def test_ranges_meet() -> None:
    assert Range(at_least=0).within(Range(at_least=0, below=1)) == Range(at_least=0, below=1)
    assert Range(at_least=0).within(Range(above=0)) == Range(above=0)
    assert Range(at_most=1).within(Range(below=1)) == Range(below=1)
    assert Range(at_least=1, at_most=3).within(Range(above=0, below=5)) == Range(at_least=1, at_most=3)
