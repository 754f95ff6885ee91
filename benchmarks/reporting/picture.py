"""The report as a picture: how many times as fast as PyTorch's default everybody is."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes

from peers import ANCHOR, PEERS
from reporting.results import Results
from workloads import WORKLOADS

__all__ = ["draw"]

OURS = ("#0b6e4f", "#58b368", "#9bc53d", "#c5d86d")
OTHERS = (
    "#d1495b",
    "#e6a3ab",
    "#8d99ae",
    "#6c5b7b",
    "#edae49",
    "#00798c",
    "#b07aa1",
    "#9c755f",
    "#bab0ac",
    "#30638e",
    "#f28e2b",
    "#ffbe7d",
    "#76b7b2",
    "#a0cbe8",
)


def draw(results: Results, path: Path) -> None:
    """One panel for each number of threads; a mark for each peer that trains the same."""
    counts = sorted({threads for _, threads in results.rows})
    longest = max(sum(threads == count for _, threads in results.rows) for count in counts)
    size = (6.5 * len(counts) + 2, 0.42 * longest + 1.8)
    figure, panels = pyplot.subplots(1, len(counts), figsize=size, squeeze=False, layout="constrained")
    for axes, threads in zip(panels[0], counts, strict=True):
        _panel(axes, results, threads)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _panel(axes: Axes, results: Results, threads: int) -> None:
    names = [name for name, count in results.rows if count == threads]
    colours = {name: OURS[place] for place, name in enumerate(name for name in PEERS if PEERS[name].ours)}
    rest = [name for name in PEERS if name not in colours]
    colours |= {name: OTHERS[place % len(OTHERS)] for place, name in enumerate(rest)}
    axes.axvline(1, color="#cccccc", zorder=0)
    for peer in results.columns:
        speeds = [results.speed(name, threads, peer, ANCHOR) for name in names]
        found = [(speed, place) for place, speed in enumerate(speeds) if speed is not None]
        ours = PEERS[peer].ours
        axes.scatter(
            [speed for speed, _ in found],
            [place for _, place in found],
            s=90 if ours else 40,
            marker="D" if ours else "o",
            color=colours[peer],
            alpha=1.0 if ours else 0.8,
            zorder=3 if ours else 2,
            label=peer,
        )
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    ticks = [tick for tick in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(names)), [WORKLOADS[name].title for name in names])
    axes.invert_yaxis()
    axes.grid(axis="y", color="#eeeeee")
    axes.set_axisbelow(True)
    axes.set_xlabel("times as fast as PyTorch's default")
    axes.set_title(f"{threads} thread{'s' if threads > 1 else ''}", fontsize=11)
    axes.spines[["top", "right", "left"]].set_visible(False)
