"""State that is not a rule's own is refused when it is loaded, not at a later step; so are complex parameters."""

from __future__ import annotations

import copy
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from edgeopt.compat.optax import RuleState, gradient_transformation
from edgeopt.compat.torch import RuleOptimizer
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import (
    ADOPT,
    SGD,
    AdaBelief,
    Adafactor,
    AdamW,
    DAdaptAdam,
    Lion,
    Lookahead,
    MoMo,
    Muon,
    Optimizer,
    RMSprop,
    Shampoo,
)

RULES: list[Optimizer] = [
    *(SGD(), SGD(momentum=0.9), AdamW(), AdamW(amsgrad=True), AdamW(weight_decay=0.0), AdaBelief(), ADOPT(), Lion()),
    *(RMSprop(), RMSprop(momentum=0.9), RMSprop(centered=True), Muon(), Adafactor(), Lookahead(AdamW()), DAdaptAdam()),
    *(MoMo(), Shampoo()),
]


def made(rule: Optimizer) -> tuple[list[nn.Parameter], RuleOptimizer]:
    params = [nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(3))]
    return params, RuleOptimizer(params, rule)


def step(params: list[nn.Parameter], optimizer: RuleOptimizer) -> None:
    for param in params:
        param.grad = torch.ones_like(param)
    optimizer.step(lambda: torch.tensor(1.0))


@pytest.mark.parametrize("first", RULES, ids=str)
def test_what_is_loaded_can_be_gone_on_with(first: Optimizer) -> None:
    params, optimizer = made(first)
    step(params, optimizer)
    saved = optimizer.state_dict()
    for second in RULES:
        others, resumed = made(second)
        before = copy.deepcopy(resumed.state_dict())
        try:
            resumed.load_state_dict(copy.deepcopy(saved))
        except ConfigurationError:
            assert first != second
            assert resumed.state_dict() == before
            continue
        step(others, resumed)
        assert all(bool(torch.isfinite(param).all()) for param in others)


def saved_by(rule: Optimizer) -> dict[str, Any]:
    params, optimizer = made(rule)
    step(params, optimizer)
    return copy.deepcopy(optimizer.state_dict())


def test_the_message_names_what_is_missing_left_over_and_shaped_otherwise() -> None:
    _, amsgrad = made(AdamW(amsgrad=True))
    with pytest.raises(
        ConfigurationError, match=r"AdamW with these settings: of parameter 0 it lacks max_exp_avg_sq\."
    ):
        amsgrad.load_state_dict(saved_by(AdamW()))
    _, plain = made(AdamW())
    with pytest.raises(ConfigurationError, match=r"of parameter 0 nothing would read its max_exp_avg_sq\."):
        plain.load_state_dict(saved_by(AdamW(amsgrad=True)))
    _, belief = made(AdaBelief())
    with pytest.raises(ConfigurationError, match=r"it lacks exp_avg_var and nothing would read its exp_avg_sq\."):
        belief.load_state_dict(saved_by(AdamW()))
    shaped = saved_by(AdamW())
    shaped["state"][1]["exp_avg"] = torch.zeros(4)
    with pytest.raises(ConfigurationError, match=r"exp_avg of parameter 1 is \(4,\), where it has shape \(3,\)"):
        plain.load_state_dict(shaped)
    typed = saved_by(AdamW())
    typed["state"][0]["exp_avg_sq"] = typed["state"][0]["exp_avg_sq"].double()
    with pytest.raises(
        ConfigurationError, match=r"exp_avg_sq of parameter 0 is torch.float64, where it has torch.float32"
    ):
        plain.load_state_dict(typed)
    uncounted = saved_by(AdamW())
    del uncounted["state"][0]["step"]
    with pytest.raises(ConfigurationError, match="it lacks step"):
        plain.load_state_dict(uncounted)
    shared = saved_by(DAdaptAdam())
    del shared["state"][0]["shared"]
    with pytest.raises(ConfigurationError, match="of the group of parameter 0 it lacks"):
        made(DAdaptAdam())[1].load_state_dict(shared)


def test_states_of_other_parameters_and_no_states_are_refused() -> None:
    _, plain = made(AdamW())
    fewer = RuleOptimizer([nn.Parameter(torch.ones(2))], AdamW()).state_dict()
    with pytest.raises(
        ConfigurationError, match=r"groups of \[1\] parameters, where the optimizer has groups of \[2\]"
    ):
        plain.load_state_dict(fewer)
    wrongs: list[Any] = [{}, {"state": {}}, None]
    for wrong in wrongs:
        with pytest.raises(ConfigurationError, match="no state of an optimizer"):
            plain.load_state_dict(wrong)
    theirs = torch.optim.AdamW([nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(3))])
    with pytest.raises(ConfigurationError, match="there is no beta1, beta2, updates"):
        plain.load_state_dict(theirs.state_dict())


def test_a_momentum_that_was_switched_off_may_leave_its_buffer() -> None:
    params, optimizer = made(SGD(momentum=0.9))
    step(params, optimizer)
    optimizer.param_groups[0]["momentum"] = 0.0
    step(params, optimizer)
    others, resumed = made(SGD(momentum=0.9))
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    resumed.param_groups[0]["momentum"] = optimizer.param_groups[0]["momentum"] = 0.5
    for own, theirs in zip(others, params, strict=True):
        own.data.copy_(theirs.data)
    step(params, optimizer)
    step(others, resumed)
    assert all(torch.equal(own, theirs) for own, theirs in zip(others, params, strict=True))


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_complex_parameters_are_refused(rule: Optimizer) -> None:
    for dtype in (torch.complex64, torch.complex128):
        with pytest.raises(ConfigurationError, match=r"real floating-point parameters, not torch\.complex"):
            RuleOptimizer([nn.Parameter(torch.ones(2, 2, dtype=dtype))], rule)
    for xp in (np, jnp):
        for kind in ("complex64", "int32"):
            with pytest.raises(ConfigurationError, match=f"not {kind}"):
                gradient_transformation(rule).init({"z": xp.ones((2, 2), dtype=kind)})


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
def test_foreign_states_of_a_transformation_are_refused(xp: Any) -> None:
    params = {"a": xp.ones((2, 3), dtype="float32"), "b": xp.ones(3, dtype="float32")}
    adamw, belief = gradient_transformation(AdamW()), gradient_transformation(AdaBelief())
    state = adamw.init(params)
    with pytest.raises(ConfigurationError, match="This state is not that of AdaBelief: parameter 0 has slots"):
        belief.update(params, state, params)
    with pytest.raises(ConfigurationError, match="one of 2 parameters, and there are 1"):
        adamw.update({"a": params["a"]}, state, {"a": params["a"]})
    with pytest.raises(ConfigurationError, match="parameter 0 has slots"):
        adamw.update(params, RuleState(state.count, state.slots[::-1], state.shared), params)
    with pytest.raises(ConfigurationError, match="takes the state that init gave, not dict"):
        adamw.update(params, {}, params)  # type: ignore[arg-type] # wrong on purpose
