"""What the records say: who trained the same, who was fastest, and what share of the machine's peak that is."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from measuring.records import Record
from peers import ANCHOR, PEERS
from reporting.machine import machine
from workloads import WORKLOADS

__all__ = ["TOLERANCE", "Results"]

# How far losses may be from the anchor's, as a share of what the anchor learns in the steps that are compared. They
# see one batch, so a wrong gradient makes a difference of the order of one; rounding, amplified by AdamW where a
# gradient is close to zero, made 0.01 at most.
TOLERANCE = 0.05
# Narrow state is an approximation on purpose.
NARROW_TOLERANCE = 0.75
COMPARED_STEPS = 6
# Cores that neighbours may keep busy before wall times of one thread give way to CPU times.
QUIET = 0.2


@dataclass(frozen=True)
class Results:
    """All records of one report.

    Attributes:
        cells: Records by workload, threads and peer.
        facts: Counts of each workload.
        machine: What it ran on.
    """

    cells: dict[tuple[str, int, str], Record]
    facts: dict[str, dict[str, int]]
    machine: dict[str, Any]

    @classmethod
    def of(cls, records: Sequence[Record], work: Path) -> Results:
        """Arrange records, and read the facts of their workloads."""
        cells = {(each.workload, each.threads, each.peer): each for each in records if each.peer in PEERS}
        names = {name for name, _, _ in cells} & set(WORKLOADS)
        facts = {name: json.loads((work / name / "facts.json").read_text()) for name in WORKLOADS if name in names}
        return cls(cells, facts, machine())

    @property
    def rows(self) -> list[tuple[str, int]]:
        """Workload and threads of each row, in the order of the workloads."""
        known = {(workload, threads) for workload, threads, _ in self.cells}
        threads = sorted({count for _, count in known})
        return [(name, count) for count in threads for name in WORKLOADS if (name, count) in known]

    @property
    def columns(self) -> list[str]:
        """Peers that have any record, in their order."""
        known = {peer for _, _, peer in self.cells}
        return [name for name in PEERS if name in known]

    def difference(self, record: Record) -> float | None:
        """Largest difference of the first losses from the anchor's, as a share of what the anchor learned."""
        anchor = self.cells.get((record.workload, record.threads, ANCHOR))
        if anchor is None or not record.losses:
            return None
        count = min(COMPARED_STEPS, len(record.losses), len(anchor.losses))
        ours, theirs = np.array(record.losses[:count]), np.array(anchor.losses[:count])
        return float(np.max(np.abs(ours - theirs)) / np.ptp(theirs))

    @staticmethod
    def over_anchor(record: Record) -> float:
        """Time over the anchor's. Beside busy neighbours, wall time says who was interrupted: one thread's CPU time."""
        busy = record.threads == 1 and record.busy[0] > QUIET and record.cpu_over_anchor > 0
        return record.cpu_over_anchor if busy else record.over_anchor[1]

    def right(self, record: Record) -> bool:
        """Whether a peer trained, and the same as the anchor."""
        difference = self.difference(record)
        tolerance = NARROW_TOLERANCE if PEERS[record.peer].narrow else TOLERANCE
        return not record.cannot and difference is not None and difference < tolerance

    @staticmethod
    def _rival(peer: str) -> bool:
        return not PEERS[peer].ours and not PEERS[peer].narrow

    def fastest(self, workload: str, threads: int) -> Record | None:
        """The fastest peer that trained the same."""
        rivals = [
            record
            for (name, count, peer), record in self.cells.items()
            if (name, count) == (workload, threads) and self._rival(peer) and self.right(record)
        ]
        return min(rivals, key=self.over_anchor, default=None)

    def speed(self, workload: str, threads: int, peer: str, rival: str | None = None) -> float | None:
        """How many times as fast a peer is as a rival, the fastest by default: both relative to the anchor."""
        own = self.cells.get((workload, threads, peer))
        other = self.cells.get((workload, threads, rival)) if rival else self.fastest(workload, threads)
        if own is None or other is None or not self.right(own) or not self.right(other):
            return None
        return self.over_anchor(other) / self.over_anchor(own)

    def mean_speed(self, peer: str, threads: int, rival: str | None = None, updates: bool = False) -> float | None:
        """Geometric mean over the workloads, the updates alone or all others."""
        names = [name for name, count in self.rows if count == threads and WORKLOADS[name].update == updates]
        found = [self.speed(name, threads, peer, rival) for name in names]
        logarithms = [math.log(speed) for speed in found if speed is not None]
        return math.exp(sum(logarithms) / len(logarithms)) if logarithms else None

    def leanest(self, workload: str, threads: int) -> Record | None:
        """The peer that trained the same in the least memory."""
        rivals = [
            record
            for (name, count, peer), record in self.cells.items()
            if (name, count) == (workload, threads) and self._rival(peer) and self.right(record)
        ]
        return min(rivals, key=lambda record: record.memory_mib or math.inf, default=None)

    def shares(self, record: Record) -> tuple[float, float]:
        """Of the peaks of matrix products and of copies: what a step does of each, over its time and the peak."""
        busy = record.threads == 1 and record.busy[0] > QUIET
        facts, seconds = self.facts[record.workload], (record.processor_ms if busy else record.median_ms) / 1e3
        gemm = facts["flops"] / seconds / record.gemm_flops if record.gemm_flops else 0.0
        copy = facts["update_bytes"] / seconds / record.copy_bytes if record.copy_bytes else 0.0
        return gemm, copy
