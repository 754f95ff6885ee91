"""What one peer did on one workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

__all__ = ["Series"]


@dataclass
class Series:
    """Times of one peer.

    Attributes:
        seconds: Wall time of each step that counts, a list for each round.
        processor: CPU seconds of a step, all threads, one mean for each round.
        losses: The losses of the first steps of the first process.
        first: Seconds from the beginning of loading to the end of the first step, one for each process.
        memory: Growth of the peak resident memory over that after the imports, MiB; None where it is not known.
    """

    seconds: list[list[float]] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    memory: float | None = None

    @property
    def median_ms(self) -> float:
        """Median time of a step."""
        return float(np.median(np.concatenate([np.asarray(block) for block in self.seconds]))) * 1e3

    @property
    def processor_ms(self) -> float:
        """Median CPU time of a step."""
        return float(np.median(self.processor)) * 1e3

    @property
    def round_medians(self) -> list[float]:
        """The median of each round, in seconds."""
        return [float(np.median(block)) for block in self.seconds]

    def over(self, other: Series) -> list[float]:
        """This peer's median over the other's, round by round: what slows both in a round cancels out."""
        return [own / its for own, its in zip(self.round_medians, other.round_medians, strict=True)]

    def cpu_over(self, other: Series) -> float:
        """The median ratio of CPU times, round by round."""
        return float(np.median([own / its for own, its in zip(self.processor, other.processor, strict=True)]))

    def extend(self, other: Series) -> None:
        """Add what another process measured."""
        self.seconds += other.seconds
        self.processor += other.processor
        self.losses = self.losses or other.losses
        self.first += other.first
        known = [memory for memory in (self.memory, other.memory) if memory is not None]
        self.memory = max(known, default=None)

    def choose(self, rounds: Sequence[int]) -> None:
        """Count only these rounds."""
        self.seconds = [self.seconds[index] for index in rounds]
        self.processor = [self.processor[index] for index in rounds]
