"""A regression that says how sure it is: progress of diabetes after a year, and the spread to expect.

The model has two outputs, a mean and the logarithm of a variance, and learns both from the likelihood of the targets.
Data: 442 patients, Efron, Hastie, Johnstone and Tibshirani, Annals of Statistics 2004, as scikit-learn ships them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_diabetes
from torch import nn

import edgeopt
from edgeopt_runtime import TrainingSession
from finetuning.results import Array, Figures, Result, save_figure, shuffled


class Forecast(nn.Module):
    """A mean and a log-variance of ten numbers about a patient."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Dropout(0.1))
        self.mean, self.spread = nn.Linear(32, 1), nn.Linear(32, 1)

    def forward(self, patient: torch.Tensor) -> dict[str, torch.Tensor]:
        """See the class."""
        hidden = self.hidden(patient)
        return {"mean": self.mean(hidden), "log_variance": self.spread(hidden)}


def patients() -> tuple[Array, Array]:
    """Numbers and progress of each patient, of mean 0 and spread 1."""
    numbers, progress = load_diabetes(return_X_y=True)
    scaled = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
    wanted = (progress - progress.mean()) / progress.std()
    return scaled.astype(np.float32), wanted[:, None].astype(np.float32)


def run(folder: Path, *, quick: bool = False) -> Result:
    """Train the forecast; writes the bundle and the picture into the folder."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    numbers, progress = patients()
    order = rng.permutation(len(numbers))
    train, test = order[:342], order[342:]
    epochs = 15 if quick else 60
    bundle = edgeopt.export(
        Forecast(),
        torch.zeros(2, 10),
        loss=edgeopt.losses.GaussianNLL(output="mean", variance="log_variance", log_variance=True, full=True),
        optimizer=edgeopt.optimizers.AdamW(
            lr=edgeopt.schedules.WarmupCosine(5e-3, 20, epochs * (len(train) // 32)), weight_decay=0.05
        ),
        verbose=False,
    )
    session = bundle.session()
    held_out = (numbers[test], progress[test])
    before, covered_before = session.evaluate([held_out])["loss"], covered(session, *held_out)
    session.fit(lambda: shuffled(rng, 32, numbers[train], progress[train]), epochs=epochs, progress=False)
    after = session.evaluate([held_out])["loss"]
    # What a single spread for everybody gives: the likelihood under mean and variance of the training data.
    mean, variance = progress[train].mean(), progress[train].var()
    plain = float(0.5 * np.mean(np.log(2 * np.pi * variance) + (held_out[1] - mean) ** 2 / variance))
    folder.mkdir(parents=True, exist_ok=True)
    session.save(folder / "uncertainty.edgeopt")
    figures = [
        Figures("negative log-likelihood", before, after, f"{plain:.3f} by the mean of all patients"),
        Figures("share within 1.64 spreads", covered_before, covered(session, *held_out), "0.9 were exact"),
    ]
    picture = draw(folder / "uncertainty.png", session, *held_out)
    return Result("regression with uncertainty", "held-out patients", figures, picture, higher_is_better=False)


def forecast(session: TrainingSession, numbers: Array) -> tuple[Array, Array]:
    """Means and spreads."""
    outputs = session.predict(numbers)
    assert isinstance(outputs, dict)
    return outputs["mean"][:, 0], np.exp(0.5 * outputs["log_variance"][:, 0])


def covered(session: TrainingSession, numbers: Array, progress: Array) -> float:
    """How often the truth lies within 1.64 spreads of the mean, nine times in ten if the spreads are right."""
    mean, spread = forecast(session, numbers)
    return float(np.mean(np.abs(progress[:, 0] - mean) < 1.64 * spread))


def draw(path: Path, session: TrainingSession, numbers: Array, progress: Array) -> Path:
    """Each held-out patient's forecast with its spread, in the order of the forecasts, and what came."""
    mean, spread = forecast(session, numbers)
    order = np.argsort(mean)
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.add_subplot()
    place = np.arange(len(order))
    axes.fill_between(
        place, (mean - 1.64 * spread)[order], (mean + 1.64 * spread)[order], alpha=0.25, label="90 % expected here"
    )
    axes.plot(place, mean[order], label="forecast")
    axes.plot(place, progress[order, 0], ".", color="black", label="what came")
    axes.set_xlabel("held-out patients, by forecast")
    axes.set_ylabel("progress, in standard deviations")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, ncols=3)
    return save_figure(figure, path)
