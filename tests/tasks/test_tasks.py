"""Every task exports and learns, and its parts can be changed."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import ConfigurationError
from edgeopt.losses import BCEWithLogits, CrossEntropy, Focal, GaussianNLL, Huber, InfoNCE, Triplet
from edgeopt.metrics import Accuracy
from edgeopt.optimizers import SGD
from edgeopt.schedules import Constant, WarmupCosine, WarmupLinear
from edgeopt.tasks import (
    TASK,
    TASKS,
    ImageClassification,
    MetricLearning,
    Regression,
    SequenceToSequence,
    Task,
    TextClassification,
    TokenClassification,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(32, 6)).astype(np.float32)


class Net(nn.Module):
    """A normalised layer and one of given size, reshaped; several outputs if asked for."""

    def __init__(self, shape: tuple[int, ...], *names: str) -> None:
        super().__init__()
        self.names, self.shape = names, shape
        self.trunk, self.norm = nn.Linear(6, 24), nn.LayerNorm(24)
        self.heads = nn.ModuleList(nn.Linear(24, int(np.prod(shape))) for _ in names or ("only",))

    def forward(self, x: torch.Tensor) -> Any:
        """Of shape (batch, *shape)."""
        hidden = torch.tanh(self.norm(self.trunk(x)))
        outputs = [head(hidden).reshape(-1, *self.shape) for head in self.heads]
        return dict(zip(self.names, outputs, strict=True)) if self.names else outputs[0]


LABELS = (X[:, 0] > 0).astype(np.int64) + (X[:, 1] > 0)
CASES: dict[str, tuple[Task, nn.Module, Any]] = {
    "image_classification": (ImageClassification(3, lr=1e-2), Net((3,)), LABELS),
    "metric_learning": (MetricLearning(lr=1e-2), Net((8,), "anchor", "positive"), None),
    "regression": (Regression(lr=1e-2), Net((2,)), X[:, :2]),
    "sequence_to_sequence": (SequenceToSequence(lr=1e-2), Net((4, 5)), np.repeat(LABELS[:, None], 4, 1)),
    "text_classification": (TextClassification(3, lr=1e-2), Net((3,)), LABELS),
    "token_classification": (
        TokenClassification(3, lr=1e-2),
        Net((4, 3)),
        np.where(np.arange(4) < 3, LABELS[:, None], -100),
    ),
}


def test_every_registered_task_has_a_case_and_its_key():
    assert {name: type(task) for name, (task, _, _) in CASES.items()} == TASKS
    assert {cls.name: cls for cls in TASKS.values()} == TASKS
    assert all(TASK.find(alias) is TASKS[name] for alias, name in TASK.aliases.items())


def test_every_task_has_a_row_in_the_documentation():
    text = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)", text, re.MULTILINE)
    assert rows == sorted((name, cls.__name__) for name, cls in TASKS.items())


@pytest.mark.parametrize("name", CASES)
def test_it_learns(name):
    task, model, target = CASES[name]
    torch.manual_seed(0)
    bundle = edgeopt.export(model, torch.zeros(2, 6), **task, verbose=False, check=False)
    session = bundle.session()
    batch = (X,) if target is None else (X, target)
    before = session.evaluate(batch)
    for _ in range(60):
        session.step(batch)
    after = session.evaluate(batch)
    assert after["loss"] < 0.8 * before["loss"]
    assert set(after) == {"loss", *(metric.reported for metric in task["metrics"])}
    without_decay = {"norm.weight", "norm.bias", "trunk.bias"}
    numbers = session.hyperparameters
    assert "optimizer.weight_decay" in numbers
    assert not any("no_decay" in name and "weight_decay" in name for name in numbers)
    slots = {spec.parameter for spec in bundle.manifest.tensors if spec.slot == "exp_avg"}
    assert without_decay <= slots


def test_a_run_of_known_length_has_a_schedule_that_ends():
    for task, falling in ((ImageClassification(4, total_steps=200), WarmupCosine), (SequenceToSequence(), Constant)):
        assert isinstance(task.recipe().schedule, falling)
    assert TextClassification(2, total_steps=200).recipe().schedule == WarmupLinear(2e-5, 20, 200)


def test_parts_can_be_changed():
    task = ImageClassification(20, total_steps=100)
    recipe = task.recipe()
    assert [metric.reported for metric in recipe.metrics] == ["accuracy", "f1", "top_5_accuracy"]
    changed = replace(recipe, loss=Focal(), metrics=(*recipe.metrics, Accuracy(label="again")), schedule=Constant(1e-4))
    assert dict(changed)["loss"] == Focal()
    assert dict(changed)["optimizer"].default.schedule == Constant(1e-4)
    assert task.settings(loss=Focal())["loss"] == Focal()
    plain = task.settings(optimizer=SGD(0.1), schedule=None, groups=(), transforms=())
    assert plain["optimizer"] == SGD(0.1)
    assert plain["transforms"] == []
    assert replace(task, lr=1e-4).recipe().schedule == WarmupCosine(1e-4, 10, 100)
    assert "optimizer" in dict(**task)


def test_losses_follow_the_settings():
    assert ImageClassification(3).recipe().loss == CrossEntropy(label_smoothing=0.1)
    assert ImageClassification(3, multi_label=True).recipe().loss == BCEWithLogits()
    assert TextClassification(3, output="logits", target="y").recipe().loss == CrossEntropy(output="logits", target="y")
    assert Regression(robust=True).recipe().loss == Huber()
    assert Regression(variance="spread").recipe().loss == GaussianNLL(log_variance=True, variance="spread")
    assert MetricLearning("a", "b").recipe().loss == InfoNCE(output="a", other="b")
    assert MetricLearning(negative="n").recipe().loss == Triplet(0.2, output="anchor", negative="n")


def test_several_labels_and_uncertainty_train():
    labels = np.stack([X[:, 0] > 0, X[:, 1] > 0], 1).astype(np.float32)
    several = ImageClassification(2, multi_label=True)
    session = edgeopt.export(Net((2,)), torch.zeros(2, 6), **several, verbose=False, check=False).session()
    assert {"f1", "f1_micro"} <= session.step((X, labels)).keys()
    sure = Regression(variance="log_variance", output="mean")
    model = Net((1,), "mean", "log_variance")
    session = edgeopt.export(model, torch.zeros(2, 6), **sure, verbose=False, check=False).session()
    assert np.isfinite(session.step((X, X[:, :1]))["loss"])


@pytest.mark.parametrize("name", CASES)
def test_is_a_value(name):
    task = CASES[name][0]
    assert hash(replace(task)) == hash(task)
    assert pickle.loads(pickle.dumps(task)) == task
    for wrong in ({"lr": -1.0}, {"warmup": 1.0}, {"total_steps": 0}, {"total_steps": 2.5}, {"weight_decay": -1.0}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            replace(task, **wrong)


def test_impossible_settings_are_refused():
    for make, word in (
        (lambda: ImageClassification(1), "classes"),
        (lambda: TextClassification(3, multi_label=True, label_smoothing=0.1), "label_smoothing"),
        (lambda: TokenClassification(3, multi_label=True), "multi_label"),
        (lambda: Regression(robust=True, variance="v"), "choose one"),
        (lambda: MetricLearning(output="x"), "anchor"),
        (lambda: ImageClassification(num_classes=3), "classes"),  # type: ignore[call-arg]  # that is what is tested
    ):
        with pytest.raises(ConfigurationError, match=word):
            make()
