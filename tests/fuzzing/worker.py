"""Tries mutants one after the other, in a process of its own, as ONNX Runtime may take the process with it.

usage: worker.py SEED FIRST COUNT BUNDLE...

Prints the number of each mutant before it tries it, then what became of it, and a line of JSON about each that
misbehaved.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import resource
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import mutators
import numpy as np

from edgeopt_runtime import BundleError, EdgeoptError, TrainingSession, read_bundle, write_bundle
from edgeopt_runtime.dtypes import DTYPES

SECONDS = 20
MEGABYTES = 400
# What a process may take at most before an allocation fails, beside what it has when it starts.
LIMIT = 4 << 30


def batch_of(session: TrainingSession) -> dict[str, Any]:
    """Zeros for every input; lengths that the batch decides are 2. Large arrays are left to the runtime's refusal."""
    arrays: dict[str, Any] = {}
    for spec in session.signature:
        shape = [2 if isinstance(length, str) else min(length, 16) for length in spec.shape]
        arrays[spec.name] = np.zeros(shape if np.prod(shape, dtype=float) < 1e5 else [1], DTYPES[spec.dtype].storage)
    return arrays


def use(session: TrainingSession) -> bool:
    """Every call of a session; each may be refused, and none may fail otherwise. Whether it trained."""
    batch = batch_of(session)
    trained = False
    with contextlib.suppress(EdgeoptError):
        session.step(batch)
        trained = True
    for call in (
        lambda: session.evaluate([batch]),
        lambda: session.predict(batch),
        lambda: session.accumulate(batch),
        lambda: session.apply(),
        lambda: session.minimize([batch], max_iter=1),
        lambda: session.reset_seed(1),
        lambda: session.state(),
        lambda: repr(session),
    ):
        with contextlib.suppress(EdgeoptError):
            call()
    return trained


def attempt(change: str, bundle: mutators.Files | bytes, folder: Path, as_folder: bool) -> str:
    """Load a mutant and use it; what became of it."""
    if isinstance(bundle, bytes):
        source: Any = bundle
    elif as_folder and all(len(name.encode()) < 256 and "/" not in name for name in bundle):
        source = folder
        for name, content in bundle.items():
            (folder / name).write_bytes(content)
    else:
        source = mutators.packed_again(bundle)
    try:
        contents = read_bundle(source)
    except BundleError as error:
        return type(error).__name__
    try:
        session = TrainingSession(contents, threads=1, on_nonfinite="ignore")
    except BundleError as error:
        return f"session: {type(error).__name__}"
    trained = use(session)
    # What was read can be written, and read again.
    target = folder / "again.edgeopt"
    write_bundle(target, contents.manifest, contents.graphs, contents.state)
    read_bundle(target)
    return "trained" if trained else "loaded"


def main(seed: int, first: int, count: int, bundles: list[bytes]) -> None:
    """Try some mutants."""
    # Old releases of ONNX Runtime print what they refuse.
    answers, sys.stdout = sys.stdout, sys.stderr
    warnings.simplefilter("error")
    resource.setrlimit(resource.RLIMIT_AS, (_size() + LIMIT, resource.RLIM_INFINITY))
    for number in range(first, first + count):
        print(number, file=answers, flush=True)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        change, bundle = mutators.mutant(seed, number, bundles)
        began, before = time.monotonic(), _peak()
        problem = ""
        with tempfile.TemporaryDirectory() as folder:
            try:
                outcome = attempt(change, bundle, Path(folder), number % 8 == 0)
            except Exception as error:  # whatever is not typed is what is looked for
                outcome = "wrong"
                last = traceback.extract_tb(error.__traceback__)[-1]
                problem = (
                    f"{type(error).__name__}: {str(error)[:200]} ({last.filename.rpartition('/')[2]}:{last.lineno})"
                )
        seconds, grown = time.monotonic() - began, (_peak() - before) / 1024
        if not problem and grown > MEGABYTES:
            problem = f"{grown:.0f} MB"
        print(f"{change}: {outcome}", file=answers, flush=True)
        if problem:
            print(
                json.dumps({"number": number, "change": change, "problem": problem, "seconds": seconds}),
                file=answers,
                flush=True,
            )
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps({"peak": _peak() / 1024}), file=answers, flush=True)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _size() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:4]]
    main(numbers[0], numbers[1], numbers[2], [Path(name).read_bytes() for name in sys.argv[4:]])
