"""A training step of edgeopt and of everybody else: `make bench`, or `python benchmarks/bench.py --help`.

README.md says what is measured and how.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from measuring.match import Entry, Match, Schedule, match
from measuring.process import Failed, prepare
from measuring.records import Record, Store, fingerprint
from measuring.series import Series
from peers import ANCHOR, PEERS, Peer
from peers.interpreters import find_interpreter
from peers.peaks import FLOPS, copied_bytes
from peers.registry import PEAKS
from reporting import write
from workloads import WORKLOADS, select

HERE = Path(__file__).parent
BUILD = HERE.parent / "build" / "benchmarks"
# What decides how fast edgeopt is; a change of any of it calls for another measurement.
OUR_PACKAGES = ("edgeopt", "edgeopt_exporters", "edgeopt_runtime", "edgeopt_native")


@dataclass(frozen=True)
class Run:
    """One call of the command.

    Attributes:
        build: Folder of weights, artifacts and records.
        schedule: How often who runs.
        quick: Whether this is a hurry.
        again: Peers that are measured even if they were before.
    """

    build: Path
    schedule: Schedule
    quick: bool
    again: frozenset[str]

    @property
    def store(self) -> Store:
        """Where the records are."""
        return Store(self.build / "records")

    def measure(self, workload: str, threads: int, peers: dict[str, Peer]) -> None:
        """Measure those of the peers on one workload that have no record yet."""
        keys = {name: _key(peer, workload) for name, peer in peers.items()}
        missing = [
            name
            for name, key in keys.items()
            if name in self.again or self.store.current(workload, threads, name, key, self.quick) is None
        ]
        if not missing:
            return
        folder = self.build / "work" / workload
        facts = _facts(workload, folder)
        entries: dict[str, Entry] = {}
        prepared: dict[str, dict[str, Any]] = {}
        for peer in [*(PEERS[name] for name in {ANCHOR: 0} | dict.fromkeys(missing)), *PEAKS.values()]:
            try:
                entries[peer.name], prepared[peer.name] = _prepared(peer, workload, folder)
            except Failed as reason:
                print(f"{workload}, {peer.name}: {reason}", flush=True)
                if peer.name in missing:
                    self.store.save(Record(workload, threads, peer.name, keys[peer.name], cannot=str(reason)))
        if not set(entries) & set(missing):
            return
        outcome = match(entries, workload, self.schedule, threads)
        for name in missing:
            if name in entries:
                blank = Record(workload, threads, name, keys[name], self.quick)
                self._keep(blank, outcome, prepared[name], facts)

    def _keep(self, record: Record, outcome: Match, prepared: dict[str, Any], facts: dict[str, int]) -> None:
        """Turn what a peer did into its record."""
        name = record.peer
        record.when = datetime.now(timezone.utc).date().isoformat()
        record.bytes, record.versions = prepared["bytes"], prepared["versions"]
        if name in outcome.failed:
            record.cannot = outcome.failed[name]
            print(f"{record.workload}, {record.threads} threads, {name}: {record.cannot}", flush=True)
            self.store.save(record)
            return
        series, anchor = outcome.series[name], outcome.series[ANCHOR]
        low, middle, high = np.percentile(series.over(anchor), [25, 50, 75])
        record.over_anchor = (float(low), float(middle), float(high))
        record.cpu_over_anchor = series.cpu_over(anchor)
        record.median_ms, record.processor_ms = series.median_ms, series.processor_ms
        record.memory_mib, record.losses = series.memory, series.losses
        record.first_step_seconds = float(np.median(series.first))
        record.busy = outcome.busy
        product, copy = (_shortest(outcome.series[peak], record.threads) for peak in ("peak-gemm", "peak-copy"))
        record.gemm_flops, record.copy_bytes = FLOPS / product, copied_bytes(facts["update_bytes"]) / copy
        self.store.save(record)
        print(
            f"{record.workload}, {record.threads} threads, {name}: {record.median_ms:.2f} ms, CPU "
            f"{record.processor_ms:.2f} ms, {middle:.2f} of {ANCHOR}, {record.memory_mib or 0:.0f} MiB, first step "
            f"{record.first_step_seconds:.2f} s; {record.busy[1]:.2f} cores busy elsewhere",
            flush=True,
        )


def _shortest(series: Series, threads: int) -> float:
    """Seconds of a peak, which is what the machine can do, not what it did beside its neighbours: the fastest tenth."""
    wall = float(np.percentile(np.concatenate(series.seconds), 10))
    # One thread's CPU time leaves out when it was interrupted.
    return min(wall, min(series.processor)) if threads == 1 else wall


def _key(peer: Peer, workload: str) -> str:
    sources = [HERE / "peers" / f"{peer.module}.py", HERE / "peers" / "environments" / f"{peer.environment}.txt"]
    sources = [source for source in sources if source.exists()]
    if peer.ours:
        for package in OUR_PACKAGES:
            spec = find_spec(package)
            sources += [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    return fingerprint(sources, peer.name, workload, repr(WORKLOADS[workload].lr))


def _facts(workload: str, folder: Path) -> dict[str, int]:
    """What all peers start from, made once."""
    path = folder / "facts.json"
    if not path.exists():
        script = HERE / "workloads" / "facts.py"
        subprocess.run([sys.executable, str(script), workload, str(folder)], check=True, stderr=subprocess.DEVNULL)
    facts: dict[str, int] = json.loads(path.read_text())
    return facts


def _source(workload: str, folder: Path, kind: str) -> None:
    """The workload as an ONNX file, made once, with a note of the failure if it fails.

    Raises:
        Failed: torch cannot export it.
    """
    failed = folder / f"{kind}.failed"
    if not (folder / f"{kind}.onnx").exists() and not failed.exists():
        script = HERE / "workloads" / "onnx_files.py"
        command = [sys.executable, str(script), workload, str(folder), kind]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            failed.write_text(done.stderr.strip().splitlines()[-1])
    if failed.exists():
        raise Failed(f"torch's exporter: {failed.read_text()}")


def _prepared(peer: Peer, workload: str, folder: Path) -> tuple[Entry, dict[str, Any]]:
    """What the peer needs for a match; made anew if it is not there or not of today's sources.

    Raises:
        Failed: The peer is not installed, or cannot.
    """
    own = folder / (peer.artifact or peer.name)
    interpreter = find_interpreter(peer.environment, peer.module)
    maker = PEERS.get(peer.artifact, peer)
    if peer.source and not WORKLOADS[workload].update:
        _source(workload, folder, peer.source)
    answer = own / "prepared.json"
    key = _key(maker, workload)
    if not answer.exists() or json.loads(answer.read_text())["key"] != key:
        own.mkdir(parents=True, exist_ok=True)
        found = prepare(find_interpreter(maker.environment, maker.module), maker.name, workload, own)
        answer.write_text(json.dumps(found | {"key": key}))
    return Entry(interpreter, own, peer.compiles), json.loads(answer.read_text())


def main() -> int:
    """Measure what is missing, and report everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", nargs="*", default=[], help="names, or beginnings of them; all by default")
    parser.add_argument("--peers", nargs="*", default=[], help="the same; edgeopt and torch take part anyway")
    parser.add_argument("--threads", nargs="*", type=int, default=[])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, no waiting for a quiet machine")
    parser.add_argument("--again", nargs="*", default=[], help="peers to measure even if they were before")
    parser.add_argument("--lock", type=Path, help="a file to lock during each round")
    parser.add_argument("--report", action="store_true", help="measure nothing, only write the report")
    parser.add_argument("--environments", action="store_true", help="only name the environments of the peers")
    parser.add_argument("--build", type=Path, default=BUILD, help="folder for artifacts and records")
    parser.add_argument("--out", type=Path, help="folder for the report; the build folder by default")
    options = parser.parse_args()
    workloads, peers = select(options.workloads, WORKLOADS), select(options.peers, PEERS)
    peers = {name: peer for name, peer in peers.items() if not peer.needs or find_spec(peer.needs)}
    if options.environments:
        print(*sorted({peer.environment for peer in (*peers.values(), *PEAKS.values()) if peer.environment}))
        return 0
    again = frozenset(select(options.again, PEERS)) if options.again else frozenset()
    schedule = Schedule(lock=options.lock)
    if options.quick:
        schedule = replace(schedule, processes=1, rounds=3, patience=0.0)
    run = Run(options.build, schedule, options.quick, again)
    for workload in workloads:
        for threads in () if options.report else options.threads or (1, 2):
            run.measure(workload, threads, peers)
    write(run.store.all(), options.build / "work", options.out or options.build)
    return 0


if __name__ == "__main__":
    sys.exit(main())
