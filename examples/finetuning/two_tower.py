"""Two towers that learn what belongs together: the left and the right half of a handwritten digit.

Each tower looks at one half and gives a vector; the contrastive loss moves the halves of one digit together and those
of others apart. Held-out left halves then find their right halves among two hundred.
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
from finetuning.results import Array, Figures, Result, learning_curve, save_figure, shuffled

AMONG = 200


class Towers(nn.Module):
    """Vectors of 32 numbers for left halves and for right ones, and a scale that is learnt as in CLIP."""

    def __init__(self) -> None:
        super().__init__()

        def tower() -> nn.Module:
            return nn.Sequential(
                nn.Conv2d(1, 16, 5, stride=2, padding=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1),
                nn.ReLU(), nn.Flatten(), nn.Linear(32 * 7 * 4, 32),
            )  # fmt: skip

        self.left, self.right = tower(), tower()
        self.log_scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
        """See the class."""
        return {"of_left": self.left(left), "of_right": self.right(right), "scale": self.log_scale.exp()}


def halves(digits: Digits) -> tuple[Array, Array]:
    """Left and right halves, each of shape (n, 1, 28, 14)."""
    return np.ascontiguousarray(digits.images[..., :14]), np.ascontiguousarray(digits.images[..., 14:])


def found(session: TrainingSession, left: Array, right: Array, among: int) -> tuple[float, Array]:
    """How often the other half of a digit is among the ten most similar ones, and the similarities of one group."""
    hits, similarities = 0, np.zeros((among, among))
    starts = range(0, len(left) - among + 1, among)
    for start in starts:
        outputs = session.predict({"left": left[start : start + among], "right": right[start : start + among]})
        assert isinstance(outputs, dict)
        one, other = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (outputs[name] for name in NAMES))
        similarities = one @ other.T
        rank = (similarities > np.diag(similarities)[:, None]).sum(axis=1)
        hits += int((rank < 10).sum())
    return hits / (len(starts) * among), similarities


NAMES = ("of_left", "of_right")


def run(folder: Path, *, quick: bool = False) -> Result:
    """Train both towers; writes the bundle and the picture into the folder."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    digits, held_out = split(load_digits(), 40 if quick else 100, 0)
    order = rng.permutation(len(held_out.labels))
    test = halves(Digits(held_out.images[order], held_out.labels[order]))
    train = halves(digits)
    epochs = 1 if quick else 12
    bundle = edgeopt.export(
        Towers(),
        {"left": torch.zeros(2, 1, 28, 14), "right": torch.zeros(2, 1, 28, 14)},
        loss=edgeopt.losses.InfoNCE(output="of_left", other="of_right", scale="scale"),
        optimizer=edgeopt.optimizers.AdamW(
            lr=edgeopt.schedules.WarmupCosine(2e-3, 30, epochs * (len(train[0]) // 128))
        ),
        verbose=False,
    )
    session = bundle.session()
    before, _ = found(session, *test, AMONG)
    history = session.fit(lambda: shuffled(rng, 128, *train), epochs=epochs, progress=False)
    after, similarities = found(session, *test, AMONG)
    folder.mkdir(parents=True, exist_ok=True)
    session.save(folder / "two_tower.edgeopt")
    picture = draw(folder / "two_tower.png", [step["loss"] for step in history.steps], similarities)
    note = f"ten of {AMONG}, by chance {10 / AMONG}"
    figures = [Figures("the other half among the first ten", before, after, note)]
    return Result("two towers, contrastive", "share of held-out digits", figures, picture)


def draw(path: Path, losses: list[float], similarities: Array) -> Path:
    """The loss, and the similarities of all left halves with all right ones."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    grid = figure.add_gridspec(1, 2)
    learning_curve(figure, grid[0], losses)
    axes = figure.add_subplot(grid[1])
    shown = axes.imshow(similarities[:60, :60], cmap="viridis")
    axes.set_xlabel("right halves")
    axes.set_ylabel("left halves")
    axes.set_title("cosines: what belongs together is on the diagonal", fontsize=10)
    figure.colorbar(shown)
    return save_figure(figure, path)
