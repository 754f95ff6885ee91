"""What has been measured, a file for each workload, number of threads and peer; so that an interrupted run goes on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Record", "Store", "fingerprint"]


@dataclass
class Record:
    """One cell of the report.

    Attributes:
        workload: Its name.
        threads: Threads within an operator.
        peer: Its name.
        key: Fingerprint of what was measured.
        quick: Whether it was measured in a hurry.
        cannot: Why the peer does not train this; empty if it does.
        median_ms: Median time of a step.
        over_anchor: Its time over the anchor's: quartiles over the rounds.
        cpu_over_anchor: The same of CPU time, the median.
        processor_ms: Median CPU time of a step, all threads.
        memory_mib: Growth of the peak resident memory over that after the imports.
        bytes: Size of what a device gets; None for those that ship no artifact.
        first_step_seconds: From the beginning of loading to the end of the first step; the median of the processes.
        losses: Of the first steps.
        versions: Of the packages that ran.
        busy: Cores that other processes kept busy meanwhile: median and largest.
        gemm_flops: Floating-point operations a second of a matrix product, measured in the same rounds.
        copy_bytes: Bytes a second of a copy, read and written, measured in the same rounds.
        when: The day.
    """

    workload: str
    threads: int
    peer: str
    key: str
    quick: bool = False
    cannot: str = ""
    median_ms: float = 0.0
    over_anchor: tuple[float, float, float] = (0.0, 0.0, 0.0)
    cpu_over_anchor: float = 0.0
    processor_ms: float = 0.0
    memory_mib: float | None = None
    bytes: int | None = None
    first_step_seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    busy: tuple[float, float] = (0.0, 0.0)
    gemm_flops: float = 0.0
    copy_bytes: float = 0.0
    when: str = ""


@dataclass(frozen=True)
class Store:
    """The folder of the records."""

    folder: Path

    def find(self, workload: str, threads: int, peer: str) -> Record | None:
        """What was measured, if it was."""
        path = self._path(workload, threads, peer)
        return Record(**json.loads(path.read_text())) if path.exists() else None

    def current(self, workload: str, threads: int, peer: str, key: str, quick: bool) -> Record | None:
        """The same, unless what was measured has changed since; a quick one will do if quick ones are asked for."""
        record = self.find(workload, threads, peer)
        return record if record and record.key == key and (quick or not record.quick) else None

    def save(self, record: Record) -> None:
        """Keep a record, in place of the last, whole or not at all."""
        path = self._path(record.workload, record.threads, record.peer)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(record), indent=1) + "\n")
        os.replace(draft, path)

    def all(self) -> list[Record]:
        """Every record."""
        return [Record(**json.loads(path.read_text())) for path in sorted(self.folder.glob("*/*.json"))]

    def _path(self, workload: str, threads: int, peer: str) -> Path:
        return self.folder / workload / f"{peer}-{threads}.json"


def fingerprint(sources: Iterable[Path], *words: Any) -> str:
    """A short name of some files' contents (of the sources in a folder) and some words."""
    digest = hashlib.sha256(json.dumps(words).encode())
    for source in sources:
        for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
