"""A small model learns from a large one: what the teacher thinks of every class, not only which one is right.

The teacher is a convolutional network that has seen all the digits. The student, a perceptron with a twentieth of the
multiplications, sees a few of them; once with their labels alone, and once with the teacher's scores besides. Teacher
and student are one model with two outputs, of which the teacher is frozen; the student is cut out at the end.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

import edgeopt
from edgeopt.cli.quickstart.digits import Digits, load_digits, split
from edgeopt_runtime import TrainingSession
from finetuning.results import Array, Figures, Result, save_figure, shuffled


def teacher() -> nn.Module:
    """A convolutional network."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def student() -> nn.Module:
    """A perceptron with 16 hidden units."""
    return nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(14 * 14, 16), nn.ReLU(), nn.Linear(16, 10))


class Lesson(nn.Module):
    """Both looking at the same images."""

    def __init__(self, teacher: nn.Module, student: nn.Module) -> None:
        super().__init__()
        self.teacher, self.student = teacher.requires_grad_(False), student

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        """Scores of student and teacher."""
        return {"scores": self.student(image), "taught": self.teacher(image)}


def run(folder: Path, *, quick: bool = False) -> Result:
    """Train the teacher, then the student twice; writes the bundle and the picture into the folder."""
    torch.manual_seed(0)
    digits, held_out = split(load_digits(), 100, 0)
    _, few = split(digits, 20, 1)
    test = (held_out.images, held_out.labels)
    learnt = teacher()
    master = trained(learnt, digits, edgeopt.losses.CrossEntropy(), 1 if quick else 4)
    learnt.load_state_dict({name: torch.from_numpy(value) for name, value in master.parameters().items()})
    best = accuracy(master, *test)
    weights = student().state_dict()

    def lesson() -> Lesson:
        pupil = student()
        pupil.load_state_dict(weights)
        return Lesson(learnt, pupil)

    epochs = 5 if quick else 60
    alone = edgeopt.losses.CrossEntropy(output="scores")
    taught = edgeopt.losses.Distillation(output="scores", teacher="taught", temperature=3.0) + 0.3 * alone
    accuracies, sessions = {}, {}
    for name, loss, data in (
        ("from 200 labels", alone, few),
        ("from 200 labels and the teacher", taught, few),
        (
            "from the teacher alone, 4,000 images",
            edgeopt.losses.Distillation(output="scores", teacher="taught"),
            digits,
        ),
    ):
        epochs_here = epochs if data is few else max(1, epochs // 10)
        sessions[name] = trained(lesson(), data, loss, epochs_here)
        accuracies[name] = accuracy(sessions[name], *test)
    before = accuracy(export(lesson(), alone, 100).session(), *test)
    folder.mkdir(parents=True, exist_ok=True)
    sessions["from 200 labels and the teacher"].save(folder / "distillation.edgeopt")
    figures = [Figures(name, before, after) for name, after in accuracies.items()]
    figures.append(Figures("the teacher", 0.1, best, "20 times the multiplications"))
    picture = draw(folder / "distillation.png", {**accuracies, "the teacher": best})
    return Result("distillation into a smaller model", "accuracy on held-out digits", figures, picture)


def trained(model: nn.Module, data: Digits, loss: edgeopt.losses.Loss, epochs: int) -> TrainingSession:
    """Train a model; of a lesson, the student."""
    rng = np.random.default_rng(0)
    steps = epochs * (len(data.labels) // 32)
    bundle = export(model, loss, steps)
    session = bundle.session()
    labelled = any(spec.kind == "loss" for spec in bundle.manifest.inputs)
    arrays = (data.images, data.labels) if labelled else (data.images,)
    session.fit(lambda: shuffled(rng, 32, *arrays), epochs=epochs, progress=False)
    return session


def export(model: nn.Module, loss: edgeopt.losses.Loss, steps: int) -> edgeopt.Bundle:
    """A training run of so many steps."""
    return edgeopt.export(
        model,
        torch.rand(2, 1, 28, 28),
        loss=loss,
        optimizer=edgeopt.optimizers.AdamW(lr=edgeopt.schedules.WarmupCosine(5e-3, steps // 10, steps)),
        verbose=False,
    )


def accuracy(session: TrainingSession, images: Array, labels: Array) -> float:
    """How often the highest score, of a lesson the student's, is that of the label."""
    outputs = session.predict(images)
    scores = outputs["scores"] if isinstance(outputs, dict) else outputs
    return float(np.mean(scores.argmax(axis=1) == labels))


def draw(path: Path, accuracies: dict[str, float]) -> Path:
    """The accuracies beside each other."""
    figure = Figure(figsize=(8, 3), layout="constrained")
    axes = figure.add_subplot()
    names = list(accuracies)[::-1]
    bars = axes.barh(names, [100 * accuracies[name] for name in names], color="tab:blue")
    axes.bar_label(bars, fmt="%.1f %%", padding=3)
    axes.set_xlim(0, 108)
    axes.set_xlabel("accuracy on held-out digits")
    return save_figure(figure, path)
