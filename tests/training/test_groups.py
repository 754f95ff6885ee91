"""Parameter groups in a bundle, against torch optimizers with the same groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own abbreviation

from edgeopt.bundle import Bundle
from edgeopt.errors import ConfigurationError, ParameterPatternError, SignatureError
from edgeopt.losses import MSE
from edgeopt.optimizers import SGD, Adam, AdamW, Group, Lookahead, Muon, OptimizerLike, ParameterGroups
from edgeopt.schedules import WarmupLinear
from edgeopt.training import compose
from edgeopt_runtime import TrainingSession

rng = np.random.default_rng(0)
WEIGHTS = {
    "first.weight": rng.normal(size=(4, 6)),
    "first.bias": rng.normal(size=6),
    "norm.scale": rng.normal(size=6),
    "last.weight": rng.normal(size=(6, 3)),
    "last.bias": rng.normal(size=3),
}
BATCHES = [{"x": rng.normal(size=(5, 4)), "target": rng.normal(size=(5, 3))} for _ in range(4)]


def network(p):
    hidden = p["x"] @ p["first.weight"] + p["first.bias"]
    hidden = hidden * hidden * p["norm.scale"]
    return hidden @ p["last.weight"] + p["last.bias"]


def torch_loss(params: dict[str, torch.Tensor], batch: dict[str, Any]) -> torch.Tensor:
    return F.mse_loss(network({**params, "x": torch.tensor(batch["x"])}), torch.tensor(batch["target"]))


def train_torch(
    make: Callable[[dict[str, torch.Tensor]], list[torch.optim.Optimizer]], steps: int = len(BATCHES)
) -> dict[str, Any]:
    params = {name: torch.tensor(value, requires_grad=True) for name, value in WEIGHTS.items()}
    optimizers = make(params)
    for step in range(steps):
        for value in params.values():
            value.grad = None
        torch_loss(params, BATCHES[step % len(BATCHES)]).backward()
        for optimizer in optimizers:
            optimizer.step()
    return {name: value.detach().numpy() for name, value in params.items()}


@pytest.fixture(scope="module")
def session(forward_model) -> Callable[[OptimizerLike], TrainingSession]:
    return lambda optimizer: Bundle.of(
        compose(forward_model(network, WEIGHTS, ("batch", 4)), loss=MSE(), optimizer=optimizer)
    ).session()


def test_rate_decay_and_frozen(session):
    ours = session(
        [
            Group("first.weight", frozen=True),
            Group(("*.bias", "norm.*"), weight_decay=0.0, name="plain"),
            Group("last.*", lr_multiplier=16.0, weight_decay=0.5, name="last"),
            AdamW(0.01),
        ]
    )
    assert ours.hyperparameters == {
        "schedule.lr": 0.01,
        "optimizer.beta1": 0.9,
        "optimizer.beta2": 0.999,
        "optimizer.eps": 1e-8,
        "optimizer.plain.lr_multiplier": 1.0,
        "optimizer.last.lr_multiplier": 16.0,
        "optimizer.last.weight_decay": 0.5,
    }
    assert {spec.name for spec in ours.manifest.tensors if spec.trainable} == set(WEIGHTS) - {"first.weight"}
    metrics = [ours.step(batch) for batch in BATCHES]
    expected = train_torch(
        lambda p: [
            torch.optim.AdamW(
                [
                    {"params": [p["first.bias"], p["norm.scale"], p["last.bias"]], "weight_decay": 0.0},
                    {"params": [p["last.weight"]], "lr": 0.16, "weight_decay": 0.5},
                ],
                lr=0.01,
            )
        ]
    )
    assert metrics[0]["lr"] == 0.01
    assert not [name for name in metrics[0] if name.startswith("lr_")]
    for name, value in ours.parameters().items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-12, err_msg=name)


def test_another_rule_for_matrices(session):
    rate = WarmupLinear(0.05, 2, 10)
    ours = session(
        ParameterGroups(
            AdamW(0.01), (Group("last.weight"), Group(ndim=2, optimizer=SGD(rate, momentum=0.9), name="matrices"))
        )
    )
    assert {"schedule.lr", "schedule.matrices.lr", "optimizer.matrices.momentum"} <= set(ours.hyperparameters)
    metrics = [ours.step(batch) for batch in BATCHES]
    assert [step["lr"] for step in metrics] == [0.01] * 4
    np.testing.assert_allclose([step["lr_matrices"] for step in metrics], [0.0, 0.025, 0.05, 0.05 * 7 / 8])

    def make(p):
        matrices = torch.optim.SGD([p["first.weight"]], lr=0.05, momentum=0.9)
        # the rates of the schedule, one for each step
        rates = iter([0.0, 0.025, 0.05, 0.05 * 7 / 8])
        matrices.register_step_pre_hook(lambda rule, *_: rule.param_groups[0].update(lr=next(rates)))
        return [torch.optim.AdamW([p[name] for name in p if name != "first.weight"], lr=0.01), matrices]

    expected = train_torch(make)
    for name, value in ours.parameters().items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-12, err_msg=name)


def test_muon_for_matrices_and_adamw_for_the_rest_is_what_torch_makes_of_it(session):
    ours = session([Group(ndim=2, optimizer=Muon(0.02), name="matrices"), AdamW(0.01)])
    for step in range(25):
        ours.step(BATCHES[step % len(BATCHES)])

    def make(p):
        matrices, rest = ([value for value in p.values() if (value.ndim == 2) == wanted] for wanted in (True, False))
        return [torch.optim.Muon(matrices, lr=0.02), torch.optim.AdamW(rest, lr=0.01)]

    for name, expected in train_torch(make, 25).items():
        # torch computes Muon's step in bfloat16, and the gradients of all parameters follow from where that leads.
        moved = np.linalg.norm(expected - WEIGHTS[name])
        assert np.linalg.norm(ours.parameters()[name] - expected) <= 0.01 * moved, name


def test_muon_for_matrices_and_adamw_for_the_rest_are_the_two_rules_by_hand(session):
    rules = {name: Muon(0.02) if value.ndim == 2 else AdamW(0.01) for name, value in WEIGHTS.items()}
    ours = session([Group(ndim=2, optimizer=Muon(0.02), name="matrices"), AdamW(0.01)])
    params, states = dict(WEIGHTS), {name: rule.init(WEIGHTS[name]) for name, rule in rules.items()}
    for step in range(25):
        batch = BATCHES[step % len(BATCHES)]
        ours.step(batch)
        tensors = {name: torch.tensor(value, requires_grad=True) for name, value in params.items()}
        slopes = torch.autograd.grad(torch_loss(tensors, batch), list(tensors.values()))
        for (name, rule), slope in zip(rules.items(), slopes, strict=True):
            numbers = {**rule.hyperparameters(), "lr": rule.lr}
            hyper = {key: np.asarray(number) for key, number in numbers.items()}
            arrays = params[name], slope.numpy(), states[name]
            params[name], states[name] = rule.update(numpy_namespace, *arrays, hyper, np.asarray(step + 1))
    state = ours.state()
    for name, value in params.items():
        np.testing.assert_allclose(state[name], value, rtol=1e-9, atol=1e-9, err_msg=name)
        for slot, expected in states[name].items():
            np.testing.assert_allclose(state[f"optimizer.{slot}.{name}"], expected, rtol=1e-9, atol=1e-9, err_msg=slot)


def test_numbers_of_a_group_can_be_changed_on_the_device(session):
    groups = [Group("last.*", lr_multiplier=2.0, name="last"), SGD(0.1)]
    changed, plain = session(groups), session(groups)
    changed.set_hyper("optimizer.last.lr_multiplier", 0.0)
    for each in (changed, plain):
        each.step(BATCHES[0])
    assert np.array_equal(changed.parameters()["last.weight"], WEIGHTS["last.weight"])
    assert not np.array_equal(plain.parameters()["last.weight"], WEIGHTS["last.weight"])
    assert np.array_equal(changed.parameters()["first.bias"], plain.parameters()["first.bias"])


def test_wrappers_go_around_the_rules_of_groups(session):
    ours = session([Group(ndim=2, optimizer=Lookahead(Muon(0.02)), weight_decay=0.0), Lookahead(AdamW(0.01))])
    assert {"optimizer.lookahead.alpha", "optimizer.group_1.lookahead.alpha"} <= set(ours.hyperparameters)
    assert "optimizer.group_1.weight_decay" not in ours.hyperparameters
    assert np.isfinite([ours.step(batch)["loss"] for batch in BATCHES]).all()
    slots = {(spec.parameter, spec.slot) for spec in ours.manifest.tensors if spec.role == "optimizer"}
    assert ("first.weight", "slow_param") in slots
    assert ("first.weight", "momentum_buffer") in slots
    assert ("first.weight", "exp_avg") not in slots


def test_a_step_equals_accumulate_and_apply(session):
    groups = [Group("*.bias", weight_decay=0.0), Group(ndim=2, optimizer=SGD(0.01, momentum=0.9)), AdamW(0.01)]
    whole, parts = session(groups), session(groups)
    for batch in BATCHES:
        whole.step(batch)
        for part in (slice(0, 2), slice(2, 5)):
            parts.accumulate({key: value[part] for key, value in batch.items()})
        parts.apply()
    for name, value in whole.state().items():
        np.testing.assert_allclose(parts.state()[name], value, rtol=1e-10, err_msg=name)


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ([Group("nothing.*"), SGD()], ParameterPatternError, "'nothing.*' matches none"),
        ([Group("*.bias"), Group("last.bias"), SGD()], ParameterPatternError, "group_2 .* is empty"),
        ([Group(ndim=5), SGD()], ParameterPatternError, "group_1 .* is empty"),
        ([Group(frozen=True), SGD()], ParameterPatternError, "frozen"),
        ([Group("last.*", optimizer=Adam(), name="x"), Group("*.bias", name="x"), SGD()], ConfigurationError, "names"),
        ([Group("*.bias")], ConfigurationError, "one rule for the rest"),
        ([SGD(), Adam()], ConfigurationError, "one rule for the rest"),
        (0.1, ConfigurationError, "must be one of edgeopt's"),
    ],
)
def test_groups_that_make_no_sense_are_refused(session, groups, error, message):
    with pytest.raises(error, match=message):
        session(groups)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Group(lr_multiplier=-1.0), "lr_multiplier"),
        (lambda: Group(weight_decay=float("nan")), "weight_decay"),
        (lambda: Group(name="a.b"), "identifier"),
        (lambda: Group(frozen=True, weight_decay=0.1), "frozen"),
        (lambda: ParameterGroups(0.1), "default"),  # type: ignore[arg-type] # wrong on purpose
        (lambda: ParameterGroups(SGD(), (SGD(),)), "Group"),  # type: ignore[arg-type] # wrong on purpose
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_names_that_meet_are_refused(session):
    with pytest.raises(SignatureError, match=r"optimizer\.lookahead\.alpha"):
        session([Group("*.bias", optimizer=_WithAlpha(0.1), name="lookahead"), Lookahead(SGD(0.1))])


class _WithAlpha(SGD):
    def hyperparameters(self):
        return {"alpha": 0.25}
