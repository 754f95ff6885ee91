"""`edgeopt train`: go on training a bundle."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from edgeopt.cli.arrays import read_samples
from edgeopt.cli.console import err, out
from edgeopt.cli.options import BatchSize, BundlePath, Data, Providers, Threads, named_numbers
from edgeopt.cli.progress import TrainingProgress
from edgeopt_runtime import TrainingSession

__all__ = ["train"]


class OnNonFinite(str, enum.Enum):
    """What to do when a loss is infinite or NaN."""

    RAISE = "raise"
    SKIP = "skip"
    IGNORE = "ignore"


def train(
    bundle: BundlePath,
    data: Data,
    output: Annotated[Path, typer.Option("--out", help="Where to save the trained bundle.")],
    epochs: Annotated[int, typer.Option(min=1, help="How often to go through the data.")] = 1,
    batch_size: BatchSize = None,
    validation: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="An .npz file to evaluate on after each epoch.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides the order of the samples.")] = 0,
    hyper: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Set a hyperparameter, as in lr=1e-4.")
    ] = None,
    on_nonfinite: Annotated[OnNonFinite, typer.Option(help="When a loss is infinite or NaN.")] = OnNonFinite.RAISE,
    provider: Providers = None,
    threads: Threads = None,
) -> None:
    """Train a bundle on the samples of an .npz file, and save it."""
    session = TrainingSession.load(bundle, providers=provider, threads=threads, on_nonfinite=on_nonfinite.value)
    for name, value in named_numbers(hyper or ()).items():
        session.set_hyper(name, value)
    samples = read_samples(data, session.signature)
    held_out = read_samples(validation, session.signature) if validation else None
    size = samples.batch_size(batch_size)
    rng = np.random.default_rng(seed)
    steps = len(range(0, samples.count, size))
    with TrainingProgress(err, epochs=epochs, steps=steps) as progress:
        session.fit(
            lambda: samples.shuffled(size, rng),
            epochs=epochs,
            progress=False,
            callbacks=[progress],
            evaluate_on=(lambda: held_out.in_order(held_out.batch_size(batch_size))) if held_out else None,
        )
    session.save(output)
    out.print(f"trained on {samples.count} samples, {epochs} epoch{'s' if epochs > 1 else ''}; saved to {output}")
