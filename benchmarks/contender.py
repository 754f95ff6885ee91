"""The process of one peer, run by the interpreter of that peer's environment.

    python contender.py prepare PEER WORKLOAD FOLDER
    python contender.py serve PEER WORKLOAD FOLDER THREADS

The first makes what a device would get and prints one line of JSON about it. The second loads the model at the first
line of standard input, reads numbers of steps from the others, takes them, and answers each line with one of JSON.
While it waits it does nothing, so several share a machine without disturbing each other.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from measuring.memory import forget_peak, peak_memory
from peers.base import Cannot, Checked, implementation
from peers.registry import PEAKS, PEERS
from workloads import WORKLOADS, Batch, Workload

# The first steps see one batch, so that their losses fall by learning alone; they are what is compared.
COMPARED_STEPS = 6


def main(task: str, name: str, about: str, place: str, threads: str = "1") -> None:
    """Carry out one of the two tasks."""
    answers = _own_the_output()
    peer, workload, folder = (PEERS | PEAKS)[name], WORKLOADS[about], Path(place)
    module = implementation(import_module(f"peers.{peer.module}"))
    try:
        if task == "prepare":
            os.nice(10)  # nothing of this is timed against anybody
            start = time.perf_counter()
            size = module.prepare(workload, peer.variant, folder)
            seconds = time.perf_counter() - start
            _say(answers, {"bytes": size, "seconds": seconds, "versions": _versions(module.PACKAGES)})
        else:
            _serve(answers, name, workload, folder, int(threads))
    except Cannot as answer:
        _say(answers, {"cannot": str(answer)})
    except Exception as error:  # other people's software: whatever it says is the answer
        traceback.print_exc()
        lines = str(error).strip().splitlines() or [""]
        _say(answers, {"cannot": f"{type(error).__name__}: {lines[0][:200]}", "failed": True})


def _serve(answers: int, name: str, workload: Workload, folder: Path, threads: int) -> None:
    peer = (PEERS | PEAKS)[name]
    module = implementation(import_module(f"peers.{peer.module}"))
    module.imports(workload, peer.variant)
    taken = 0

    def ready(count: int) -> list[Batch]:
        return [workload.batch(max(0, step - COMPARED_STEPS + 1)) for step in range(taken, taken + count)]

    (first,) = ready(1)
    _say(answers, {"imported": True})
    sys.stdin.readline()
    imported = forget_peak()
    start = time.perf_counter()
    step = module.load(workload, peer.variant, folder, threads)
    loss = step(first)
    check = step.check if isinstance(step, Checked) else None
    _say(answers, {"first_step_seconds": time.perf_counter() - start, "losses": [check() if check else loss]})
    taken = 1
    for line in sys.stdin:
        batches = ready(int(line))
        taken += len(batches)
        seconds, losses = [], []
        processor = time.process_time()
        for batch in batches:
            start = time.perf_counter()
            losses.append(step(batch))
            seconds.append(time.perf_counter() - start)
            if check:
                losses[-1] = check() if taken <= COMPARED_STEPS + 2 else 0.0
        processor = time.process_time() - processor
        peak = peak_memory()
        growth = None if peak is None or imported is None else peak - imported
        _say(answers, {"seconds": seconds, "processor": processor, "losses": losses, "memory": growth})


def _own_the_output() -> int:
    """A descriptor for answers; what libraries print to standard output goes to standard error from here on."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


def _say(answers: int, message: dict[str, Any]) -> None:
    os.write(answers, (json.dumps(message, default=float) + "\n").encode())


def _versions(packages: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
