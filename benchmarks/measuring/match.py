"""Several peers train the same workload, a block of steps each in turn."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from measuring.process import Contender, Failed
from measuring.quiet import Neighbours
from measuring.series import Series

__all__ = ["Entry", "Match", "Schedule", "match"]

# The workers of ONNX Runtime's and OpenMP's thread pools spin for a while after their last work (measured: 35 ms and
# 1.5 ms). For so long they would take a core from whoever runs next.
SETTLING_SECONDS = 0.1

# For so long the machine must have been quiet before a round; several of the kernel's ticks of 10 ms.
GLANCE_SECONDS = 0.1

# More steps of a block say nothing new.
LONGEST_BLOCK = 8


@dataclass(frozen=True)
class Schedule:
    """How often who runs.

    Attributes:
        processes: Times that all peers start afresh. How a process's memory and threads happen to lie sets its speed:
            between runs of one process each, PyTorch's CNN step with two threads took 4.4 ms or 5.8 ms.
        rounds: Blocks of each peer that count, in each process.
        block: Seconds of a block that count: as many steps as fit, one to eight, and one more before them, which finds
            another's data in the caches and does not count.
        warm_up: Steps of each peer before those that count, those included that compare losses.
        quiet: A round counts if other processes kept fewer cores than this busy.
        patience: Seconds to wait for quiet, in each process. After that every round is taken, and the quietest count.
        lock: A file that is locked during each round, where several people measure on one machine.
    """

    processes: int = 2
    rounds: int = 6
    block: float = 0.4
    warm_up: int = 8
    quiet: float = 0.1
    patience: float = 30.0
    lock: Path | None = None


@dataclass(frozen=True)
class Entry:
    """Who takes part: its interpreter, the folder with what it prepared, and whether it compiles when it loads."""

    interpreter: Path
    folder: Path
    compiles: bool = False


@dataclass
class Match:
    """The outcome.

    Attributes:
        series: What each peer did, with the same rounds for all.
        failed: Why others could not.
        neighbours: Cores that other processes kept busy in the rounds that count.
    """

    series: dict[str, Series] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    neighbours: list[float] = field(default_factory=list)

    @property
    def busy(self) -> tuple[float, float]:
        """The median and the largest of what neighbours kept busy."""
        return float(np.median(self.neighbours)), max(self.neighbours)


def match(entries: Mapping[str, Entry], workload: str, schedule: Schedule, threads: int) -> Match:
    """Measure all peers on a workload.

    Each has a process of its own: two thread pools in one process get in each other's way (PyTorch becomes up to twenty
    times slower when its steps alternate with those of ONNX Runtime), and memory is measured without the others'. The
    first of a round changes from round to round. A peer that fails leaves the match, which goes on.

    Which rounds count is decided by what other processes did, never by the times.
    """
    outcome = Match()
    for _ in range(schedule.processes):
        remaining = {name: entry for name, entry in entries.items() if name not in outcome.failed}
        part = _Part(remaining, workload, schedule, threads).play()
        outcome.failed |= part.failed
        outcome.neighbours += part.neighbours
        for name, series in part.series.items():
            outcome.series.setdefault(name, Series()).extend(series)
    for name in outcome.failed:
        outcome.series.pop(name, None)
    return outcome


class _Part:
    """One process of each peer."""

    def __init__(self, entries: Mapping[str, Entry], workload: str, schedule: Schedule, threads: int) -> None:
        self._entries, self._workload, self._schedule, self._threads = entries, workload, schedule, threads
        self._players: dict[str, Contender] = {}
        self._steps: dict[str, int] = {}
        self._outcome = Match()

    def play(self) -> Match:
        """Start them, warm them up, play rounds until enough of them were quiet."""
        outcome, schedule = self._outcome, self._schedule
        with ExitStack() as stack:
            starting = {
                name: stack.enter_context(
                    Contender(entry.interpreter, name, self._workload, entry.folder, self._threads)
                )
                for name, entry in self._entries.items()
            }
            for name, player in starting.items():
                self._start(name, player)
            neighbours = Neighbours([player.pid for player in self._players.values()])
            deadline = time.monotonic() + schedule.patience
            while sum(load < schedule.quiet for load in outcome.neighbours) < schedule.rounds and self._players:
                if time.monotonic() > deadline and len(outcome.neighbours) >= schedule.rounds:
                    break
                _wait(neighbours, schedule.quiet, deadline)
                with self._turn():
                    neighbours.load()
                    self._round(len(outcome.neighbours))
                    outcome.neighbours.append(neighbours.load())
        for name in outcome.failed:
            outcome.series.pop(name, None)
        loads = outcome.neighbours
        chosen = sorted(sorted(range(len(loads)), key=loads.__getitem__)[: schedule.rounds])
        for series in outcome.series.values():
            series.choose(chosen)
        outcome.neighbours = [loads[index] for index in chosen]
        return outcome

    def _start(self, name: str, player: Contender) -> None:
        """Load and warm up one after the other, so that nobody's first step is taken beside another's."""
        try:
            player.imported()
            with self._turn(self._entries[name].compiles):
                first = player.load()
                self._outcome.series[name] = Series(losses=first["losses"], first=[first["first_step_seconds"]])
                warm = self._advance(name, player, self._schedule.warm_up - 1)
        except Failed as reason:
            self._outcome.failed[name] = str(reason)
            return
        self._players[name] = player
        self._steps[name] = max(1, min(LONGEST_BLOCK, int(self._schedule.block / warm)))

    def _advance(self, name: str, player: Contender, steps: int) -> float:
        """Take steps that do not count but whose losses do; seconds of one."""
        answer = player.run(max(steps, 1))
        series = self._outcome.series[name]
        series.losses += answer["losses"]
        series.memory = answer["memory"]
        return float(np.median(answer["seconds"]))

    def _round(self, number: int) -> None:
        names = list(self._players)
        first = number % max(len(names), 1)
        for name in (*names[first:], *names[:first]):
            try:
                answer = self._players[name].run(self._steps[name] + 1)
            except Failed as reason:
                self._outcome.failed[name] = str(reason)
                del self._players[name]
                continue
            series = self._outcome.series[name]
            series.memory = answer["memory"]
            series.seconds.append(answer["seconds"][1:])
            series.processor.append(answer["processor"] / (self._steps[name] + 1))
            time.sleep(SETTLING_SECONDS if self._threads > 1 else 0.0)

    @contextmanager
    def _turn(self, long: bool = False) -> Iterator[None]:
        """Hold the lock of the machine, if there is one, unless it would be for long."""
        if self._schedule.lock is None or long:
            yield
            return
        with self._schedule.lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _wait(neighbours: Neighbours, quiet: float, deadline: float) -> None:
    """Sleep until the others are quiet, or the deadline."""
    neighbours.load()
    while True:
        time.sleep(GLANCE_SECONDS)
        if neighbours.load() < quiet or time.monotonic() > deadline:
            return
