"""`edgeopt train`: go on training a bundle."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from edgeopt.cli.arrays import read_samples
from edgeopt.cli.console import err, out, print_line
from edgeopt.cli.options import BatchSize, BundlePath, Data, Providers, Threads, named_numbers
from edgeopt.cli.output import check_bundle_output, check_file_output
from edgeopt.cli.progress import TrainingProgress
from edgeopt.errors import EdgeoptError
from edgeopt_runtime import FitInfo, TrainingSession

__all__ = ["INTERRUPTED", "train"]

# What shells return for a program that Ctrl-C has ended.
INTERRUPTED = 130


class OnNonFinite(str, enum.Enum):
    """What to do when a loss is infinite or NaN."""

    RAISE = "raise"
    SKIP = "skip"
    IGNORE = "ignore"


def train(
    bundle: BundlePath,
    data: Data,
    output: Annotated[Path, typer.Option("--out", help="Where to save the trained bundle, after each epoch.")],
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
    inference: Annotated[
        Path | None,
        typer.Option("--export-inference", metavar="FILE.onnx", help="Write the trained model as a plain ONNX file."),
    ] = None,
    provider: Providers = None,
    threads: Threads = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each epoch, and no table.")] = False,
) -> None:
    """Train a bundle on the samples of an .npz file, and save it after each epoch.

    Ctrl-C ends the training and saves what has been learned.
    """
    check_bundle_output(output)
    if inference is not None:
        check_file_output(inference)
    session = TrainingSession.load(bundle, providers=provider, threads=threads, on_nonfinite=on_nonfinite.value)
    for name, value in named_numbers(hyper or ()).items():
        session.set_hyper(name, value)
    samples = read_samples(data, session.signature)
    size = samples.batch_size(batch_size)
    held_out = read_samples(validation, session.signature) if validation else None
    held_out_size = held_out.batch_size(batch_size) if held_out else size
    if held_out:
        held_out.check_divides(held_out_size)
    rng = np.random.default_rng(seed)
    steps = len(range(0, samples.count, size))
    keeper = _Keeper(output, inference, epochs, as_json)
    progress = TrainingProgress(err, epochs=epochs, steps=steps, table=not as_json)
    try:
        with progress:
            session.fit(
                lambda: samples.shuffled(size, rng),
                epochs=epochs,
                progress=False,
                callbacks=[progress, keeper],
                evaluate_on=(lambda: held_out.in_order(held_out_size)) if held_out else None,
            )
    except KeyboardInterrupt:
        keeper.interrupted(session)
        raise typer.Exit(INTERRUPTED) from None
    except EdgeoptError:
        keeper.failed()
        raise
    keeper.finished(session, samples.count)


class _Keeper:
    """A callback of `fit` that saves after each epoch, and reports it."""

    def __init__(self, output: Path, inference: Path | None, epochs: int, as_json: bool) -> None:
        self._output, self._inference, self._epochs, self._as_json = output, inference, epochs, as_json
        self._epoch = self._step = 0

    def __call__(self, session: TrainingSession, info: FitInfo) -> None:
        """Take in one step or one finished epoch."""
        self._step = info.step
        if info.event != "epoch":
            return
        session.save(self._output)
        self._epoch = info.epoch
        if self._as_json:
            place = {"epoch": info.epoch, "epochs": self._epochs, "step": info.step}
            print_line({"event": "epoch", **place, "metrics": info.metrics})

    def finished(self, session: TrainingSession, count: int) -> None:
        """Say what was done."""
        if self._inference is not None:
            session.export_inference(self._inference)
        plural = "s" if self._epochs > 1 else ""
        self._report("finished", f"trained on {count} samples, {self._epochs} epoch{plural}; saved to {self._output}")

    def interrupted(self, session: TrainingSession) -> None:
        """Save what was learned since the last epoch; without any, nothing is written."""
        if self._step == 0:
            err.print("stopped before the first step; nothing was trained, and nothing was written")
            return
        session.save(self._output)
        if self._inference is not None:
            session.export_inference(self._inference)
        self._report(
            "interrupted", f"stopped after {self._step} steps, {self._epoch} whole epochs; saved to {self._output}"
        )

    def failed(self) -> None:
        """Say what is left of a training that an error ended."""
        if self._epoch:
            err.print(f"{self._output} holds the state after epoch {self._epoch}")

    def _report(self, event: str, text: str) -> None:
        wrote = {"inference": str(self._inference)} if self._inference is not None else {}
        if self._as_json:
            print_line(
                {"event": event, "epochs": self._epoch, "step": self._step, "bundle": str(self._output), **wrote}
            )
            return
        out.print(text)
        if self._inference is not None:
            out.print(f"wrote {self._inference}")
