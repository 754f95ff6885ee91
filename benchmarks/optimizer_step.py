"""Time of the update of AdamW alone against PyTorch; README.md says how it measures."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from contender import BUNDLE
from duel import CONTENDERS, Duel, Schedule, duel
from parameters import SETS, gradients, parameters
from report import machine
from workloads import ADAMW

# Relative, of the mean square of all parameters after each block.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Result:
    """What was measured for one set of parameters."""

    parameters: str
    threads: int
    duel: Duel

    @property
    def difference(self) -> float:
        """Largest relative difference between edgeopt and PyTorch in what the parameters have become."""
        ours, theirs = (np.array(self.duel.series[name].losses) for name in ("edgeopt", "torch"))
        count = min(len(ours), len(theirs))
        return float(np.max(np.abs(ours[:count] - theirs[:count]) / theirs[:count]))

    def ratio(self, other: str) -> float:
        """edgeopt's time over another's, the median over the rounds."""
        return float(np.median(self.duel.series["edgeopt"].ratios(self.duel.series[other])))

    def as_dict(self) -> dict[str, Any]:
        """The numbers of the report."""
        return {
            "parameters": self.parameters,
            "tensors": len(SETS[self.parameters]),
            "elements": sum(math.prod(shape) for shape in SETS[self.parameters]),
            "threads": self.threads,
            "relative_difference": float(f"{self.difference:.2g}"),
            "cores_busy_elsewhere": [round(load, 3) for load in self.duel.neighbours],
            "contenders": {
                name: {
                    "median_ms": round(series.median_ms, 4),
                    "processor_ms": round(series.processor_ms, 4),
                    "edgeopt_over_this": round(self.ratio(name), 4),
                }
                for name, series in self.duel.series.items()
            },
        }


def export_bundle(name: str, path: Path) -> None:
    """A bundle of one graph: the update, with gradients that lie in the state."""
    from edgeopt import Bundle
    from edgeopt.optimizers import AdamW, as_groups
    from edgeopt.tracing import IR_VERSION, OPSET
    from edgeopt.training.graphs.builder import GraphBuilder
    from edgeopt.training.plan import group_numbers
    from edgeopt.training.updating.groups import resolve
    from edgeopt.training.updating.state import initial_state
    from edgeopt.training.updating.update import update_groups
    from edgeopt_runtime.manifest import Manifest

    params = parameters(name)
    groups = resolve(as_groups(AdamW(lr=ADAMW["lr"], weight_decay=ADAMW["weight_decay"])), params)
    buffers = {f"gradient.{key}": value for key, value in gradients(name).items()}
    state = initial_state(params, buffers, groups, seed=0)
    builder = GraphBuilder("step", state)
    update_groups(builder, groups, {key: builder.state(f"gradient.{key}") for key in params}, {})
    graph = builder.finish()
    manifest = Manifest(
        opset=OPSET,
        ir_version=IR_VERSION,
        minimum_onnxruntime="1.17.0",
        tensors=tuple(state.tensors.values()),
        accumulators=tuple(state.accumulators.values()),
        joined=tuple(state.joined.values()),
        hyperparameters=tuple(group_numbers(groups)),
        inputs=(),
        outputs=(),
        signatures={"step": graph.signature},
    )
    Bundle(manifest, {graph.signature.file: graph.model}, state.values).save(path)


def measure(name: str, threads: int, schedule: Schedule) -> Result:
    """Let the contenders update one set of parameters."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        export_bundle(name, folder / BUNDLE)
        (folder / "workload.json").write_text(json.dumps({"parameters": name, "threads": threads}))
        return Result(name, threads, duel(folder, schedule, threads, "optimizer_contender.py"))


def write(results: Sequence[Result], folder: Path) -> None:
    """Write optimizer_step.json and .md."""
    folder.mkdir(parents=True, exist_ok=True)
    about = machine()
    content = {"machine": about, "results": [result.as_dict() for result in results]}
    (folder / "optimizer_step.json").write_text(json.dumps(content, indent=2) + "\n")
    head = ["parameters", "tensors", "elements", "threads", *(f"{name}, ms" for name in CONTENDERS)]
    head += [f"ratio to {name}" for name in CONTENDERS[1:]]
    rows = [head, ["---"] * len(head)]
    for result, row in ((result, result.as_dict()) for result in results):
        times = [f"{result.duel.series[name].median_ms:.2f}" for name in CONTENDERS]
        ratios = [f"{result.ratio(name):.2f}" for name in CONTENDERS[1:]]
        rows.append([str(row[key]) for key in head[:4]] + times + ratios)
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    packages = ", ".join(f"{name} {about[name]}" for name in ("edgeopt", "onnxruntime", "torch", "numpy"))
    busiest = max(result.duel.neighbours[1] for result in results)
    text = f"""# One update of AdamW

{table}

{about["system"]} on {about["architecture"]}, {about["cores"]} cores, Python {about["python"]}; {packages}. Other
processes kept at most {busiest:.2f} cores busy in the rounds that count.

Times are medians of single updates, ratios edgeopt's time over PyTorch's, the median over the rounds: below 1 edgeopt
is faster. Small parameters are joined and updated together; the gradients are separate tensors, as in a training step.
"""
    (folder / "optimizer_step.md").write_text(text)


def main() -> int:
    """Measure, report, and fail if the contenders did not do the same."""
    parser = argparse.ArgumentParser(description="Time of AdamW's update: edgeopt against PyTorch.")
    parser.add_argument("--parameters", nargs="+", choices=sorted(SETS), default=list(SETS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    Schedule.add_options(parser)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results"), help="folder for the report")
    arguments = parser.parse_args()
    schedule = Schedule.chosen(arguments)
    results = []
    for name, threads in itertools.product(arguments.parameters, arguments.threads):
        result = measure(name, threads, schedule)
        results.append(result)
        times = ", ".join(f"{key} {series.median_ms:.2f} ms" for key, series in result.duel.series.items())
        print(f"{name} {threads} threads: {times}; {result.duel.neighbours[1]:.2f} cores busy elsewhere", flush=True)
    write(results, arguments.out)
    different = [result for result in results if not result.difference < TOLERANCE]
    for result in different:
        print(f"{result.parameters}: the parameters differ by {result.difference:.1e}", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
