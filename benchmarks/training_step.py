"""Time of one training step against PyTorch: `python benchmarks/training_step.py`. README.md says how it measures."""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from pathlib import Path

from contender import BUNDLE
from duel import Schedule, duel
from report import LOSS_TOLERANCE, Result, write
from workloads import ADAMW, SGD, SIZES, Workload, batches, weights


def export_bundle(workload: Workload, path: Path) -> None:
    """Export the model with its first weights, the optimizer and its settings."""
    import torch

    import edgeopt
    from models import build

    optimizer: edgeopt.optimizers.Optimizer
    if workload.optimizer == "sgd":
        optimizer = edgeopt.optimizers.SGD(lr=SGD["lr"], momentum=SGD["momentum"])
    else:
        optimizer = edgeopt.optimizers.AdamW(lr=ADAMW["lr"], weight_decay=ADAMW["weight_decay"])
    module = build(workload.model, weights(workload.model))
    images, _ = batches(workload.model)(0)
    loss = edgeopt.losses.CrossEntropy()
    edgeopt.export(module, torch.from_numpy(images), loss=loss, optimizer=optimizer).save(path)


def measure(workload: Workload, schedule: Schedule) -> Result:
    """Prepare a workload and let the contenders train it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export_bundle(workload, folder / BUNDLE)
        workload.save(folder / "workload.json")
        return Result(workload, duel(folder, schedule, workload.threads))


def main() -> int:
    """Measure, report, and fail if the losses say that the contenders did not train the same."""
    parser = argparse.ArgumentParser(description="Time of one training step: edgeopt against PyTorch eager.")
    parser.add_argument("--models", nargs="+", choices=sorted(SIZES), default=["mlp", "cnn"])
    parser.add_argument("--optimizers", nargs="+", choices=["sgd", "adamw"], default=["sgd", "adamw"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    Schedule.add_options(parser)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results"), help="folder for the report")
    arguments = parser.parse_args()
    schedule = Schedule.chosen(arguments)
    results = []
    for model, optimizer, threads in itertools.product(arguments.models, arguments.optimizers, arguments.threads):
        result = measure(Workload(model, optimizer, threads), schedule)
        results.append(result)
        times = ", ".join(f"{name} {series.median_ms:.2f} ms" for name, series in result.series.items())
        print(
            f"{model} {optimizer} {threads} threads: {times}; ratio {result.ratio('torch')[1]:.2f}, "
            f"{result.duel.neighbours[1]:.2f} cores busy elsewhere",
            flush=True,
        )
    write(results, arguments.out)

    different = [result for result in results if not result.loss_difference < LOSS_TOLERANCE]
    for result in different:
        print(f"{result.workload}: the losses differ by {result.loss_difference:.1e}", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
