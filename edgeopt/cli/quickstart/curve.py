"""The picture of a training run."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgeopt_runtime.atomic import replace_file

__all__ = ["draw_curve"]


def draw_curve(path: Path, losses: Sequence[float], held_out_accuracy: Sequence[float], floor: float) -> None:
    """Write a PNG: the loss at every step with its running mean, and the accuracy after every epoch.

    Args:
        path: Of the PNG.
        losses: At every step.
        held_out_accuracy: After every epoch.
        floor: The lowest loss that there can be; label smoothing keeps it above 0.
    """
    # The object interface needs no display and leaves the user's matplotlib settings alone.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    steps = np.arange(1, len(losses) + 1)
    epochs = np.linspace(len(losses) / len(held_out_accuracy), len(losses), len(held_out_accuracy))
    window = max(1, len(losses) // 40)
    smooth = np.convolve(losses, np.full(window, 1.0 / window), mode="valid")

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    left = figure.add_subplot()
    left.plot(steps, losses, color="tab:blue", alpha=0.25, linewidth=0.8, label="training loss")
    left.plot(steps[window - 1 :], smooth, color="tab:blue", linewidth=1.8, label=f"mean of {window} steps")
    label = f"lowest possible, {floor:.2f} (label smoothing)"
    left.axhline(floor, color="tab:gray", linestyle="--", linewidth=1.0, label=label)
    left.set_ylim(bottom=0.0)
    left.set_xlabel("step")
    left.set_ylabel("cross entropy")
    left.grid(alpha=0.3)
    right = left.twinx()
    right.plot(
        epochs, 100.0 * np.asarray(held_out_accuracy), "o-", color="tab:orange", label="accuracy on held-out digits"
    )
    right.set_ylabel("accuracy, %")
    lines = [*left.get_lines(), *right.get_lines()]
    figure.legend(lines, [str(line.get_label()) for line in lines], loc="outside lower center", ncols=2)
    left.set_title(f"Handwritten digits, trained by ONNX Runtime: {held_out_accuracy[-1]:.1%} on held-out digits")
    picture = io.BytesIO()
    figure.savefig(picture, dpi=120, format="png")
    replace_file(path, [picture.getbuffer()])
