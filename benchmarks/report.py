"""Results as JSON, as a Markdown table and as a picture."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from duel import CONTENDERS, Duel, Series
from workloads import BATCH_SIZE, Workload

__all__ = ["LOSS_TOLERANCE", "Result", "machine", "write"]

# Relative, over the first steps. Later ones say nothing: rounding errors grow while a model trains, and after 200 steps
# of AdamW PyTorch with one thread differs from PyTorch with two by 6e-3.
LOSS_TOLERANCE = 1e-3
COMPARED_STEPS = 50

_COLOURS = {"edgeopt": "#0b6e4f", "torch": "#d1495b", "torch foreach": "#e6a3ab", "torch fused": "#8d99ae"}
_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd", "sve")


@dataclass(frozen=True)
class Result:
    """What was measured for one workload."""

    workload: Workload
    duel: Duel

    @property
    def series(self) -> dict[str, Series]:
        """What each contender did."""
        return self.duel.series

    @property
    def loss_difference(self) -> float:
        """Largest relative difference between the losses of edgeopt and PyTorch in the first steps."""
        ours, theirs = (np.array(self.series[name].losses[:COMPARED_STEPS]) for name in ("edgeopt", "torch"))
        return float(np.max(np.abs(ours - theirs) / np.abs(theirs)))

    def ratio(self, other: str) -> tuple[float, float, float]:
        """edgeopt's time over another's: quartiles over the rounds, the median in the middle."""
        low, middle, high = np.percentile(self.series["edgeopt"].ratios(self.series[other]), [25, 50, 75])
        return float(low), float(middle), float(high)

    def as_dict(self) -> dict[str, Any]:
        """The numbers of the report, without the single steps."""
        rows = {
            name: {
                "median_ms": round(series.median_ms, 4),
                "processor_ms": round(series.processor_ms, 4),
                "peak_memory_growth_mib": series.memory and round(series.memory, 1),
                "edgeopt_over_this": [round(quartile, 4) for quartile in self.ratio(name)],
                "losses": [
                    series.losses[index] for index in range(0, COMPARED_STEPS, 10) if index < len(series.losses)
                ],
            }
            for name, series in self.series.items()
        }
        return {
            **asdict(self.workload),
            "relative_loss_difference": float(f"{self.loss_difference:.2g}"),
            "cores_busy_elsewhere": {
                "median": round(self.duel.neighbours[0], 3),
                "max": round(self.duel.neighbours[1], 3),
            },
            "contenders": rows,
        }


def machine() -> dict[str, Any]:
    """The machine in general terms, and the versions of what ran on it."""
    information = Path("/proc/cpuinfo")
    words = set(information.read_text().split()) if information.exists() else set()
    packages = ("edgeopt", "torch", "onnxruntime", "numpy")
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "cpu_features": [feature for feature in _FEATURES if feature in words],
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }


def table(results: Sequence[Result]) -> str:
    """The rows of all workloads."""
    head = [
        "model",
        "optimizer",
        "threads",
        "edgeopt, ms",
        "PyTorch, ms",
        "ratio (quartiles)",
        "foreach",
        "fused",
        "CPU time, ms",
        "peak memory, MiB",
    ]
    rows = [head, ["---"] * len(head)]
    for result in results:
        workload, series = result.workload, result.series
        ours, theirs = series["edgeopt"], series["torch"]
        low, middle, high = result.ratio("torch")
        rows.append(
            [
                workload.model.upper(),
                {"sgd": "SGD", "adamw": "AdamW"}[workload.optimizer],
                str(workload.threads),
                f"{ours.median_ms:.2f}",
                f"{theirs.median_ms:.2f}",
                f"**{middle:.2f}** ({low:.2f} to {high:.2f})",
                f"{result.ratio('torch foreach')[1]:.2f}",
                f"{result.ratio('torch fused')[1]:.2f}",
                f"{ours.processor_ms:.2f} / {theirs.processor_ms:.2f}",
                f"{_mib(ours.memory)} / {_mib(theirs.memory)}",
            ]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _mib(memory: float | None) -> str:
    return "?" if memory is None else f"{memory:.0f}"


def _markdown(results: Sequence[Result], about: dict[str, Any]) -> str:
    features = ", ".join(about["cpu_features"]) or "no features known"
    packages = ", ".join(f"{name} {about[name]}" for name in ("edgeopt", "onnxruntime", "torch", "numpy"))
    busiest = max(result.duel.neighbours[1] for result in results)
    return f"""# One training step, batch {BATCH_SIZE}

{table(results)}

{about["system"]} on {about["architecture"]} ({features}), {about["cores"]} cores, Python {about["python"]}; {packages}.
Other processes kept at most {busiest:.2f} cores busy in the rounds that count.

Times are medians of single steps. A ratio is edgeopt's time over PyTorch's, the median over the rounds: below 1 edgeopt
is faster. The columns "foreach" and "fused" are the ratios to PyTorch's other implementations of the same optimizer.
CPU time counts all threads, and with several of them their spinning too. Memory is the growth of the peak resident
memory over that after the imports; edgeopt / PyTorch in both columns.

![Time of a training step](training_step.png)
"""


def _draw(results: Sequence[Result], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 4.5), layout="constrained")
    width = 0.8 / len(CONTENDERS)
    for offset, name in enumerate(CONTENDERS):
        places = [index + (offset - (len(CONTENDERS) - 1) / 2) * width for index in range(len(results))]
        heights = [result.series[name].median_ms for result in results]
        label = {"edgeopt": "edgeopt on ONNX Runtime", "torch": "PyTorch eager"}.get(
            name, name.replace("torch", "PyTorch")
        )
        axes.bar(places, heights, width, label=label, color=_COLOURS[name])
    labels = [f"{_label(result.workload)}\nratio {result.ratio('torch')[1]:.2f}" for result in results]
    axes.set_xticks(range(len(results)), labels)
    axes.set_ylabel("milliseconds")
    axes.set_title(f"One training step, batch {BATCH_SIZE} (median; ratio: edgeopt over PyTorch eager)", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _label(workload: Workload) -> str:
    optimizer = {"sgd": "SGD", "adamw": "AdamW"}[workload.optimizer]
    return f"{workload.model.upper()} {optimizer}\n{workload.threads} thread{'s' if workload.threads > 1 else ''}"


def write(results: Sequence[Result], folder: Path) -> None:
    """Write training_step.json, .md and .png."""
    folder.mkdir(parents=True, exist_ok=True)
    about = machine()
    content = {"machine": about, "batch_size": BATCH_SIZE, "results": [result.as_dict() for result in results]}
    (folder / "training_step.json").write_text(json.dumps(content, indent=2) + "\n")
    (folder / "training_step.md").write_text(_markdown(results, about))
    _draw(results, folder / "training_step.png")
