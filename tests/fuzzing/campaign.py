"""Many mutants of some bundles, tried by workers; one that dies is noted, and another goes on after that mutant."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("worker.py")
# A worker starts in half a second; what it leaks of ONNX Runtime's memory ends with it.
PORTION = 5000


@dataclass
class Report:
    """What became of the mutants.

    Attributes:
        outcomes: How often each change led to what.
        wrong: Mutants that raised something else than a typed error, or took too much memory.
        died: Mutants that ended the process or took too long, with how.
        peak: Largest memory of a worker in MB.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[dict[str, Any]] = field(default_factory=list)
    died: list[dict[str, Any]] = field(default_factory=list)
    peak: float = 0.0


def run(bundles: list[Path], seed: int, count: int, first: int = 0) -> Report:
    """Try the mutants ``first`` to ``first + count`` of a seed."""
    report = Report()
    position, end = first, first + count
    while position < end:
        position = _portion(report, bundles, seed, position, min(PORTION, end - position))
    return report


def _portion(report: Report, bundles: list[Path], seed: int, first: int, count: int) -> int:
    """Let one worker try; the number at which to go on."""
    arguments = [str(seed), str(first), str(count), *map(str, bundles)]
    done = subprocess.run([sys.executable, str(WORKER), *arguments], capture_output=True, text=True, check=False)
    at = first - 1
    for line in done.stdout.splitlines():
        if line.isdecimal():
            at = int(line)
        elif not line.startswith("{"):
            report.outcomes[line] += 1
        elif "peak" in (entry := json.loads(line)):
            report.peak = max(report.peak, entry["peak"])
        else:
            report.wrong.append(entry)
    if done.returncode == 0:
        return first + count
    if at < first:
        raise RuntimeError(f"The worker did not start: {done.stderr[-2000:]}")
    how = signal.Signals(-done.returncode).name if done.returncode < 0 else f"status {done.returncode}"
    report.died.append({"number": at, "how": how, "words": done.stderr[-3000:]})
    return at + 1


if __name__ == "__main__":
    result = run([Path(name) for name in sys.argv[4:]], *map(int, (sys.argv[1], sys.argv[3], sys.argv[2])))
    json.dump(vars(result), sys.stdout, indent=1)
