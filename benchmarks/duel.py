"""Several contenders train the same workload, a block of steps each in turn."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from quiet import Neighbours

__all__ = ["CONTENDERS", "Duel", "Schedule", "Series", "duel"]

CONTENDERS = ("edgeopt", "torch", "torch foreach", "torch fused")

# The workers of ONNX Runtime's and OpenMP's thread pools spin for a while after their last work (measured: 35 ms and
# 1.5 ms). For so long they would take a core from whoever runs next.
SETTLING_SECONDS = 0.1

# For so long the machine must have been quiet before a round; several of the kernel's ticks of 10 ms.
GLANCE_SECONDS = 0.1


@dataclass(frozen=True)
class Schedule:
    """How often who runs.

    Attributes:
        processes: Times that all contenders start afresh. How a process's memory and threads happen to lie sets its
            speed: between runs of one process each, PyTorch's CNN step with two threads took 4.4 ms or 5.8 ms.
        rounds: Blocks of each contender that count, in each process.
        block: Steps of a block that count. One more before them does not: it finds another's data in the caches.
        warm_up: Blocks of each contender before those that count.
        quiet: A round counts if other processes kept fewer cores than this busy.
        patience: Seconds to wait for quiet, in each process. After that every round is taken, and the quietest count.
    """

    processes: int = 4
    rounds: int = 10
    block: int = 8
    warm_up: int = 3
    quiet: float = 0.1
    patience: float = 30.0

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        """Let a script's user choose."""
        parser.add_argument("--processes", type=int, default=cls.processes, help="fresh starts of each contender")
        parser.add_argument("--rounds", type=int, default=cls.rounds, help="blocks of each process")
        parser.add_argument("--block", type=int, default=cls.block, help="steps, or updates, of a block")
        parser.add_argument(
            "--patience", type=float, default=cls.patience, help="seconds to wait for quiet, in each process"
        )

    @classmethod
    def chosen(cls, options: Namespace) -> Schedule:
        """What the user has chosen."""
        return cls(options.processes, options.rounds, options.block, patience=options.patience)


@dataclass
class Series:
    """What one contender did.

    Attributes:
        seconds: Wall time of each step that counts, (rounds, block).
        processor: CPU seconds of a step, all threads, one mean for each round.
        losses: The loss of every step of the first process, warm-up and rounds that do not count included.
        memory: Growth of the peak resident memory over that after the imports, MiB; None where it is not known.
    """

    seconds: list[list[float]] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    memory: float | None = None

    @property
    def median_ms(self) -> float:
        """Median time of a step."""
        return float(np.median(self.seconds)) * 1e3

    @property
    def processor_ms(self) -> float:
        """Median CPU time of a step."""
        return float(np.median(self.processor)) * 1e3

    def ratios(self, other: Series) -> list[float]:
        """This contender's median over the other's, round by round: what slows both in a round cancels out."""
        own, others = np.median(self.seconds, axis=1), np.median(other.seconds, axis=1)
        return [float(ratio) for ratio in own / others]

    def extend(self, other: Series) -> None:
        """Add what another process measured."""
        self.seconds += other.seconds
        self.processor += other.processor
        self.losses = self.losses or other.losses
        known = [memory for memory in (self.memory, other.memory) if memory is not None]
        self.memory = max(known, default=None)

    def choose(self, rounds: list[int]) -> None:
        """Count only these rounds."""
        self.seconds = [self.seconds[index] for index in rounds]
        self.processor = [self.processor[index] for index in rounds]


@dataclass(frozen=True)
class Duel:
    """The outcome.

    Attributes:
        series: What each contender did.
        neighbours: Cores that other processes kept busy in the rounds that count: the median and the largest.
    """

    series: dict[str, Series]
    neighbours: tuple[float, float]


class Contender:
    """A process that trains when told to."""

    def __init__(self, name: str, folder: Path, script: str) -> None:
        command = [sys.executable, str(Path(__file__).with_name(script)), name, str(folder)]
        self.series = Series()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid

    def __enter__(self) -> Contender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The end of its input ends it.
        self._process.communicate()

    def wait_until_ready(self) -> None:
        """Wait until it has imported what it needs and made its model."""
        self._answer()

    def run(self, steps: int, counts: bool) -> None:
        """Take one step that does not count and then some that may."""
        if self._process.stdin is None:
            raise ValueError("The process was started without a pipe.")
        self._process.stdin.write(f"{steps + 1}\n")
        self._process.stdin.flush()
        answer = self._answer()
        self.series.losses += answer["losses"]
        self.series.memory = answer["memory"]
        if counts:
            self.series.seconds.append(answer["seconds"][1:])
            self.series.processor.append(answer["processor"] / (steps + 1))

    def _answer(self) -> Any:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with status {self._process.wait()}.")
        return json.loads(line)


def duel(folder: Path, schedule: Schedule, threads: int, script: str = "contender.py") -> Duel:
    """Measure all contenders on the workload in a folder; the script is what each of them runs.

    Each has a process of its own: two thread pools in one process get in each other's way (PyTorch becomes up to twenty
    times slower when its steps alternate with those of ONNX Runtime), and memory is measured without the others'. The
    first of a round changes from round to round.

    Which rounds count is decided by what other processes did, never by the times.
    """
    series = {name: Series() for name in CONTENDERS}
    loads: list[float] = []
    for _ in range(schedule.processes):
        measured, counted = _processes(folder, schedule, threads, script)
        loads += counted
        for name, each in measured.items():
            series[name].extend(each)
    return Duel(series, (float(np.median(loads)), max(loads)))


def _processes(folder: Path, schedule: Schedule, threads: int, script: str) -> tuple[dict[str, Series], list[float]]:
    """What one process of each contender did, and the load by others in each round that counts."""
    pause = SETTLING_SECONDS if threads > 1 else 0.0
    loads: list[float] = []
    with ExitStack() as stack:
        contenders = {name: stack.enter_context(Contender(name, folder, script)) for name in CONTENDERS}
        for contender in contenders.values():
            contender.wait_until_ready()
        neighbours = Neighbours([contender.pid for contender in contenders.values()])

        def play(number: int, counts: bool) -> None:
            first = number % len(CONTENDERS)
            for name in (*CONTENDERS[first:], *CONTENDERS[:first]):
                contenders[name].run(schedule.block, counts)
                time.sleep(pause)

        for number in range(schedule.warm_up):
            play(number, counts=False)
        deadline = time.monotonic() + schedule.patience
        while sum(load < schedule.quiet for load in loads) < schedule.rounds:
            if time.monotonic() > deadline and len(loads) >= schedule.rounds:
                break
            _wait(neighbours, schedule.quiet, deadline)
            play(len(loads), counts=True)
            loads.append(neighbours.load())
    chosen = sorted(sorted(range(len(loads)), key=loads.__getitem__)[: schedule.rounds])
    series = {name: contender.series for name, contender in contenders.items()}
    for each in series.values():
        each.choose(chosen)
    return series, [loads[index] for index in chosen]


def _wait(neighbours: Neighbours, quiet: float, deadline: float) -> None:
    """Sleep until the others are quiet, or the deadline."""
    neighbours.load()
    while True:
        time.sleep(GLANCE_SECONDS)
        if neighbours.load() < quiet or time.monotonic() > deadline:
            return
