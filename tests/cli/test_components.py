from __future__ import annotations

import pytest
import typer

from edgeopt.cli.components import build
from edgeopt.errors import ConfigurationError
from edgeopt.losses import LOSSES
from edgeopt.optimizers import OPTIMIZERS, SGD, AdamW
from edgeopt.schedules import SCHEDULES, MultiStep, WarmupCosine


def test_a_name_alone_takes_the_defaults() -> None:
    assert build("optimizer", OPTIMIZERS, "adamw", lr=0.1) == AdamW(lr=0.1)


def test_settings_follow_the_name() -> None:
    made = build("optimizer", OPTIMIZERS, "sgd:momentum=0.9,nesterov=true,weight_decay=1e-4", lr=0.1)
    assert made == SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
    schedule = build("schedule", SCHEDULES, "warmup_cosine:warmup_steps=10,total_steps=100", lr=0.5)
    assert schedule == WarmupCosine(0.5, warmup_steps=10, total_steps=100)


def test_lists_stand_in_brackets() -> None:
    made = build("schedule", SCHEDULES, "multi_step:milestones=[30,60],gamma=0.5", lr=0.1)
    assert made == MultiStep(0.1, milestones=(30, 60), gamma=0.5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_needs_a_rate_at_most(name: str) -> None:
    assert isinstance(build("optimizer", OPTIMIZERS, name, lr=0.1), OPTIMIZERS[name])


def test_words_stay_words() -> None:
    assert build("loss", LOSSES, "mse:target=height,reduction=sum").target == "height"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("adamx", "there is no optimizer 'adamx'; choose from .*adam, .*sgd"),
        ("sgd:momentun=0.9", "sgd has no setting 'momentun'; its settings: .*momentum, dampening"),
        ("sgd:momentum", "settings look like key=value, got 'momentum'"),
    ],
)
def test_wrong_words_are_wrong_usage(text: str, message: str) -> None:
    with pytest.raises(typer.BadParameter, match=message):
        build("optimizer", OPTIMIZERS, text, lr=0.1)


def test_a_missing_setting_is_named() -> None:
    with pytest.raises(
        typer.BadParameter, match="warmup_cosine needs warmup_steps, total_steps: warmup_cosine:warmup_steps="
    ):
        build("schedule", SCHEDULES, "warmup_cosine", lr=0.1)


def test_impossible_values_are_refused_by_the_class() -> None:
    with pytest.raises(ConfigurationError, match="momentum"):
        build("optimizer", OPTIMIZERS, "sgd:momentum=fast", lr=0.1)
