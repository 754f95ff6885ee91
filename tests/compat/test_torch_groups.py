"""Settings in parameter groups that are changed while training, as schedules of a user's own do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgeopt.compat.settings import switches
from edgeopt.compat.torch import RuleOptimizer
from edgeopt.compat.torch.given import check_ingredients
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import OPTIMIZERS, SGD, Adagrad, AdamW, Averaged, Lookahead, Optimizer, RMSprop, Tiger

Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def run(make: Make, edits: list[dict[str, Any]]) -> np.ndarray:
    """The parameters after one step for each of the edits."""
    rng = np.random.default_rng(0)
    params = [nn.Parameter(torch.tensor(rng.normal(size=shape))) for shape in ((4, 3), (3,))]
    optimizer = make(params)
    for edit in edits:
        for group in optimizer.param_groups:
            group.update(edit)
        for param in params:
            param.grad = torch.tensor(rng.normal(size=tuple(param.shape)))
        loss = sum((param.detach() ** 2).sum() for param in params)
        optimizer.step(lambda loss=loss: loss)  # type: ignore[misc] # the default binds this loss
    return np.concatenate([param.detach().numpy().ravel() for param in params])


def follow(rule: Optimizer, edits: list[dict[str, Any]]) -> np.ndarray:
    return run(lambda params: RuleOptimizer(params, rule), edits)


RAMP = [0.0, 0.3, 0.6, 0.0, 0.9]
TORCH: list[tuple[Optimizer, Callable[..., torch.optim.Optimizer], str, dict[str, Any]]] = [
    (AdamW(0.1, weight_decay=0.0), torch.optim.AdamW, "weight_decay", {"lr": 0.1, "weight_decay": 0.0}),
    (SGD(0.1), torch.optim.SGD, "weight_decay", {"lr": 0.1}),
    (SGD(0.1), torch.optim.SGD, "momentum", {"lr": 0.1}),
    (SGD(0.1, momentum=0.9), torch.optim.SGD, "momentum", {"lr": 0.1, "momentum": 0.9}),
    (SGD(0.1, momentum=0.9), torch.optim.SGD, "dampening", {"lr": 0.1, "momentum": 0.9}),
    (RMSprop(0.1), torch.optim.RMSprop, "weight_decay", {"lr": 0.1}),
    (Adagrad(0.1), torch.optim.Adagrad, "lr_decay", {"lr": 0.1}),
    (Adagrad(0.1), torch.optim.Adagrad, "weight_decay", {"lr": 0.1}),
]


@pytest.mark.parametrize(("rule", "theirs", "name", "settings"), TORCH, ids=str)
def test_numbers_that_begin_at_0_follow_their_group_as_in_torch(
    rule: Optimizer, theirs: Callable[..., torch.optim.Optimizer], name: str, settings: dict[str, Any]
) -> None:
    edits = [{name: value} for value in RAMP]
    expected = run(lambda params: theirs(params, **settings), edits)
    np.testing.assert_allclose(follow(rule, edits), expected, rtol=1e-12)


# What a rule accepts in the place of 0.
VALUES = {"dampening": 0.5, "momentum": 0.5, "beta": 0.5, "t_alpha_beta3": 4.0, "max_norm": 0.5, "skip_above": 0.5}


def accepts(rule: Optimizer) -> bool:
    try:
        check_ingredients(rule, [nn.Parameter(torch.zeros(4, 3)), nn.Parameter(torch.zeros(3))])
    except ConfigurationError:
        return False
    return not any(type(kind).__name__.startswith("Hutchinson") for kind in rule.ingredients(np.zeros((4, 3))).values())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_number_that_switches_a_term_off_can_be_switched_on(name: str) -> None:
    cls = OPTIMIZERS[name]
    zeros: dict[str, Any] = {each: 0.0 for each in cls.optional if each in {field.name for field in fields(cls)}}
    rule = cls(**zeros)
    if not accepts(rule):
        return
    assert switches(rule).keys() == zeros.keys()
    for each in zeros:
        # Momentum of some is what others of its terms need.
        rest: dict[str, Any] = {**zeros, **({"momentum": 0.5} if each in ("dampening",) else {})}
        value = VALUES.get(each, 0.25)
        without, built = cls(**rest), cls(**{**rest, each: value})
        np.testing.assert_array_equal(follow(without, [{each: value}] * 3), follow(built, [{}] * 3), err_msg=each)
        np.testing.assert_array_equal(follow(built, [{each: 0.0}] * 3), follow(without, [{}] * 3), err_msg=each)


def test_the_settings_of_a_rule_inside_another_are_changed_too() -> None:
    edits = [{"weight_decay": value} for value in RAMP]
    inner = follow(Lookahead(AdamW(0.1, weight_decay=0.0), k=99), edits)
    expected = run(lambda params: torch.optim.AdamW(params, lr=0.1, weight_decay=0.0), edits)
    np.testing.assert_allclose(inner, expected, rtol=1e-12)
    # Both have an alpha, or a beta; the group's belongs to the rule inside, and the other is called after its owner.
    for outer in (Lookahead(RMSprop(0.1, alpha=0.5), k=2, alpha=0.25), Averaged(Tiger(0.1, beta=0.5), mode="ema")):
        optimizer = RuleOptimizer([nn.Parameter(torch.ones(2))], outer)
        optimizer.param_groups[0]["alpha" if isinstance(outer, Lookahead) else "beta"] = 0.75
        optimizer.param_groups[0]["params"][0].grad = torch.ones(2)
        optimizer.step()
        changed = optimizer._rules[0]
        assert getattr(changed, "alpha", None) == getattr(outer, "alpha", None)
        assert changed.inner in (RMSprop(0.1, alpha=0.75), Tiger(0.1, beta=0.75))  # type: ignore[attr-defined]


def test_flags_and_betas_are_changed_too() -> None:
    edits: list[dict[str, Any]] = [{}, {"betas": (0.5, 0.75)}, {}, {"betas": [0.9, 0.99]}]
    expected = run(lambda params: torch.optim.AdamW(params, lr=0.1), edits)
    np.testing.assert_allclose(follow(AdamW(0.1), edits), expected, rtol=1e-12)
    edits = [{}, {"nesterov": True}, {"nesterov": False, "maximize": True}]
    expected = run(lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9), edits)
    ours = follow(SGD(0.1, momentum=0.9), edits)
    np.testing.assert_allclose(ours, expected, rtol=1e-12)
    tensors: list[dict[str, Any]] = [{"weight_decay": torch.tensor(0.5)}]
    np.testing.assert_array_equal(
        follow(AdamW(0.1), tensors),
        follow(AdamW(0.1, weight_decay=0.5), [{}]),
    )


@pytest.mark.parametrize(
    ("rule", "edit", "message"),
    [
        (AdamW(), {"beta1": 1.0}, "beta1 must be in"),
        (AdamW(), {"betas": (0.9, 1.0)}, "beta2 must be in"),
        (AdamW(), {"betas": 0.9}, "betas must hold"),
        (AdamW(), {"weight_decay": -1.0}, "weight_decay must be at least"),
        (AdamW(), {"eps": float("nan")}, "eps must be a finite number"),
        (AdamW(), {"decay": "sideways"}, "decay must be one of"),
        (SGD(), {"nesterov": True}, "nesterov needs a momentum"),
        (Lookahead(AdamW()), {"beta1": 1.0}, "beta1 must be in"),
        (Lookahead(AdamW()), {"betas": (1.0, 0.9)}, "beta1 must be in"),
    ],
    ids=str,
)
def test_what_a_rule_refuses_is_refused_in_a_group(rule: Optimizer, edit: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        follow(rule, [{}, edit])


def test_a_late_momentum_with_dampening_is_refused() -> None:
    rule = SGD(0.1, dampening=0.5)
    with pytest.raises(ConfigurationError, match="begin with a momentum above 0"):
        follow(rule, [{}, {"momentum": 0.5}])
    # From the beginning it is what torch has.
    expected = run(lambda params: torch.optim.SGD(params, lr=0.1, dampening=0.5), [{"momentum": 0.5}] * 3)
    ours = follow(rule, [{"momentum": 0.5}] * 3)
    np.testing.assert_allclose(ours, expected, rtol=1e-12)
