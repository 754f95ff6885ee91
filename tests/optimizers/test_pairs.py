"""Formats said with a rule, by the names of pairs, and by names of parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import edgeopt
from edgeopt.errors import ConfigurationError, ParameterPatternError
from edgeopt.optimizers import (
    OPTIMIZER,
    OPTIMIZERS,
    PAIRS,
    Adam4bit,
    AdamW,
    AdamW8bit,
    Averaged,
    Lion8bit,
    Optimizer,
    QuantizedState,
    as_groups,
)
from edgeopt.quantization import FORMATS


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_every_rule_takes_a_format(name):
    made: object = OPTIMIZERS[name](lr=0.5, state="int4")
    assert made == QuantizedState(OPTIMIZERS[name](lr=0.5), "int4")
    assert OPTIMIZERS[name](lr=0.5, state=None) == OPTIMIZERS[name](lr=0.5)


def test_a_pair_is_a_rule_with_its_format():
    alike: object = AdamW(1e-2, betas=(0.8, 0.9), state="int8_dynamic")
    assert AdamW8bit(1e-2, betas=(0.8, 0.9)) == alike
    assert as_groups("adamw8bit:lr=0.1") == as_groups(AdamW8bit(lr=0.1))
    assert as_groups("paged_adamw_8bit") == as_groups(AdamW8bit) == as_groups(AdamW8bit())
    assert OPTIMIZER.build("Adam4bit") == Adam4bit()
    with pytest.raises(ConfigurationError, match="leave out state"):
        Lion8bit(state="int4")
    with pytest.raises(ConfigurationError, match="momentum"):
        OPTIMIZER.build("adamw8bit:momentum=0.9")
    with pytest.raises(ConfigurationError, match="adamw8bit"):
        OPTIMIZER.build("adamw8bits")


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_exported_under_their_names(name):
    pair: Any = PAIRS[name]
    assert pair in [getattr(edgeopt.optimizers, each) for each in edgeopt.optimizers.__all__]
    assert pair.state in FORMATS


@pytest.mark.parametrize("wrong", ["int3", 8, ["int8"], {"*": "int3"}, {"*": FORMATS["int8"]}])
def test_a_format_that_does_not_exist_is_refused(wrong):
    with pytest.raises(ConfigurationError, match="int8_dynamic"):
        AdamW(state=wrong)


def test_formats_go_by_names_of_parameters_in_a_bundle():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.Tanh(), torch.nn.Linear(96, 64))
    x = torch.randn(8, 64)

    def export(optimizer: Optimizer) -> edgeopt.Bundle:
        return edgeopt.export(model, x, loss="mse", optimizer=optimizer, verbose=False)

    bundle = export(AdamW(1e-2, state={"0.*": "int4", "*": None}))
    slots = {(spec.parameter, spec.slot) for spec in bundle.manifest.tensors if spec.parameter}
    assert {slot for name, slot in slots if name == "0.weight"} == {
        f"{slot}__int4__{part}" for slot in ("exp_avg", "exp_avg_sq") for part in ("codes", "absmax")
    }
    assert {slot for name, slot in slots if name == "2.weight"} == {"exp_avg", "exp_avg_sq"}
    session, batch = bundle.session(), [x.numpy(), np.tanh(x.numpy()[:, ::-1]).copy()]
    losses = [session.step(batch)["loss"] for _ in range(20)]
    assert losses[-1] < 0.7 * losses[0]
    # Around the whole, and within something else that goes around.
    averaged = export(Averaged(AdamW(1e-2, state={"0.*": "int4"})))
    assert {spec.slot for spec in averaged.manifest.tensors if spec.parameter == "0.weight"} >= {
        "averaged_param",
        "exp_avg__int4__codes",
    }
    averaged.session().step(batch)
    with pytest.raises(ParameterPatternError, match="zero"):
        export(AdamW(state={"zero.*": "int4"}))
    with pytest.raises(ConfigurationError, match="bundle"):
        AdamW(state={"*": "int4"}).init(np.zeros((64, 64), np.float32))
