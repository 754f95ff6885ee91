from __future__ import annotations

import pytest

from edgeopt.components import Kind, described
from edgeopt.errors import ConfigurationError
from edgeopt.losses import L1, LOSS, MSE, CrossEntropy, Huber, Loss
from edgeopt.metrics import METRIC, Accuracy
from edgeopt.optimizers import OPTIMIZER, OPTIMIZERS, SGD, AdamW
from edgeopt.schedules import SCHEDULE, MultiStep, WarmupCosine
from edgeopt.transforms import TRANSFORM, ClipByGlobalNorm, ClipByValue

KINDS: tuple[Kind[object], ...] = (LOSS, METRIC, OPTIMIZER, SCHEDULE, TRANSFORM)  # type: ignore[assignment]


def test_a_name_alone_takes_the_defaults() -> None:
    assert OPTIMIZER.build("adamw") == AdamW()


@pytest.mark.parametrize(
    "text", ["cross_entropy", "CrossEntropy", "cross-entropy", "CrossEntropyLoss", "cross entropy"]
)
def test_a_name_is_known_however_it_is_spelt(text: str) -> None:
    assert LOSS.build(text) == CrossEntropy()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_two_members_have_the_same_spelling(kind: Kind[object]) -> None:
    for name, cls in kind.registry.items():
        assert kind.find(name) is kind.find(cls.__name__) is cls
    for alias, name in kind.aliases.items():
        assert kind.find(alias) is kind.registry[name]


def test_settings_follow_the_name() -> None:
    made = OPTIMIZER.build("sgd:lr=0.1,momentum=0.9,nesterov=true,weight_decay=1e-4")
    assert made == SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
    assert SCHEDULE.build("warmup_cosine:lr=0.5,warmup_steps=10,total_steps=100") == WarmupCosine(
        0.5, warmup_steps=10, total_steps=100
    )


def test_settings_that_stand_for_several_are_known() -> None:
    assert OPTIMIZER.build("adamw:betas=[0.8,0.9]") == AdamW(beta1=0.8, beta2=0.9)


def test_lists_stand_in_brackets() -> None:
    made = SCHEDULE.build("multi_step:lr=0.1,milestones=[30,60],gamma=0.5")
    assert made == MultiStep(0.1, milestones=(30, 60), gamma=0.5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_has_a_rate_of_its_own(name: str) -> None:
    assert isinstance(OPTIMIZER.build(name), OPTIMIZERS[name])


def test_words_stay_words() -> None:
    made = LOSS.build("mse:target=height, reduction=sum")
    assert (made.target, made.reduction) == ("height", "sum")


def test_one_or_several_in_any_form() -> None:
    assert METRIC.several(None) == METRIC.several([]) == ()
    assert METRIC.several("accuracy") == METRIC.several(Accuracy) == METRIC.several([Accuracy()]) == (Accuracy(),)
    made = TRANSFORM.several(("clip_by_value:clip_value=2", ClipByGlobalNorm(1.0)))
    assert made == (ClipByValue(2.0), ClipByGlobalNorm(1.0))


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (OPTIMIZER, "adamx", "There is no optimizer 'adamx'; did you mean 'adamax'. Choose from .*adam, .*sgd"),
        (OPTIMIZER, "sgd:momentun=0.9", "SGD has no setting 'momentun'; it is called momentum here"),
        (OPTIMIZER, "sgd:momentum", "settings look like key=value, got 'momentum'"),
        (OPTIMIZER, "sgd:lr=1,lr=2", "gives 'lr' twice"),
        (OPTIMIZER, "sgd:momentum=fast", "momentum"),
        (
            SCHEDULE,
            "warmup_cosine:lr=1",
            "warmup_cosine needs warmup_steps, total_steps: warmup_cosine:warmup_steps=...,total_steps=...",
        ),
        (LOSS, "binary_crossentropy", "reads probabilities; give 'bce_with_logits'"),
        (LOSS, "", "There is no loss ''"),
    ],
)
def test_words_that_describe_nothing_are_refused(kind: Kind[object], text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        kind.build(text)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (LOSS, None, r"must be one of edgeopt's, edgeopt.losses.CrossEntropy\(\), or its name; got None"),
        (LOSS, Loss, "got the class edgeopt.Loss"),
        (TRANSFORM, ClipByValue, r"ClipByValue is a class; give ClipByValue\(clip_value=...\)"),
        (METRIC, {"accuracy"}, None),
        (METRIC, AdamW(), "must be one of edgeopt's.*; got an edgeopt.AdamW"),
    ],
)
def test_other_things_are_refused(kind: Kind[object], value: object, message: str | None) -> None:
    if message is None:
        assert kind.several(value) == (Accuracy(),)
        return
    with pytest.raises(ConfigurationError, match=message):
        kind.one(value)


def test_values_are_described_in_a_few_words() -> None:
    given = [None, 3, "word", [1], AdamW(), AdamW, described, len]
    assert [described(value) for value in given] == [
        *("None", "3", "'word'", "a list", "an edgeopt.AdamW", "the class edgeopt.AdamW"),
        *("the function edgeopt.described", "the function len"),
    ]


@pytest.mark.parametrize(
    ("text", "loss"),
    [
        (
            "cross_entropy:output=logits,label_smoothing=1e-1 + 0.3*mse:output=depth,target=depth",
            CrossEntropy(output="logits", label_smoothing=0.1) + 0.3 * MSE(output="depth", target="depth"),
        ),
        ("2 * huber:delta=1e+0 + l1", 2 * Huber(1.0) + L1()),
        ("mse + l1 + -0.5 * huber", MSE() + L1() + -0.5 * Huber()),
        ("0.5*mse", 0.5 * MSE()),
        ("mse:output=a*b", MSE(output="a*b")),
    ],
)
def test_losses_are_added_in_words(text: str, loss: Loss) -> None:
    assert LOSS.build(text) == loss


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mse + ", "no loss on one side of a plus"),
        ("x * mse", "'x' is no factor"),
        ("nan * mse", "finite"),
        ("mse + 3 * nope", "There is no loss 'nope'"),
    ],
)
def test_a_sum_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        LOSS.build(text)


def test_only_losses_are_added() -> None:
    with pytest.raises(ConfigurationError, match="There is no metric"):
        METRIC.build("accuracy + accuracy")
