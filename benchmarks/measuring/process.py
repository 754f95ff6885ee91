"""A peer's process, as its manager holds it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["Contender", "Failed", "prepare"]

SCRIPT = Path(__file__).parents[1] / "contender.py"

# Nobody waits longer for a step or a compiler.
PATIENCE_SECONDS = 900.0


class Failed(Exception):  # noqa: N818 # an outcome, not an error of ours
    """The peer's process ended, or said that it cannot; the text is the reason."""


def _environment(interpreter: Path, threads: int) -> dict[str, str]:
    count = str(threads)
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    # What this process finds on its path is none of another environment's.
    ours = interpreter == Path(sys.executable)
    kept = {name: value for name, value in os.environ.items() if ours or name != "PYTHONPATH"}
    return {**kept, **dict.fromkeys(names, count), "TF_CPP_MIN_LOG_LEVEL": "2", "HF_HUB_OFFLINE": "1"}


def prepare(interpreter: Path, peer: str, workload: str, folder: Path) -> dict[str, Any]:
    """Let a peer make its artifact; its answer.

    Raises:
        Failed: It cannot.
    """
    command = [str(interpreter), str(SCRIPT), "prepare", peer, workload, str(folder)]
    with (folder / "prepare.log").open("w") as log:
        environment = _environment(interpreter, os.cpu_count() or 1)
        try:
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                timeout=PATIENCE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"it makes its artifact in more than {PATIENCE_SECONDS:.0f} s.") from None
    answer = json.loads(done.stdout) if done.stdout.strip() else {"cannot": _ending(done.returncode)}
    return _checked(answer)


def _ending(status: int) -> str:
    return f"its process ended with status {status}." if status >= 0 else f"its process was killed by signal {-status}."


def _checked(answer: Mapping[str, Any]) -> dict[str, Any]:
    if "cannot" in answer:
        raise Failed(str(answer["cannot"]))
    return dict(answer)


class Contender:
    """A process that trains when told to; it ends with the `with` block."""

    def __init__(self, interpreter: Path, peer: str, workload: str, folder: Path, threads: int) -> None:
        command = [str(interpreter), str(SCRIPT), "serve", peer, workload, str(folder), str(threads)]
        self._log = (folder / "serve.log").open("w")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=_environment(interpreter, threads),
        )
        self.pid = self._process.pid

    def __enter__(self) -> Contender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The end of its input ends it; what still computes is stopped.
        if error is not None:
            self._process.kill()
        self._process.communicate()
        self._log.close()

    def imported(self) -> None:
        """Wait until it has imported its packages.

        Raises:
            Failed: The peer cannot train this.
        """
        self._answer()

    def load(self) -> dict[str, Any]:
        """Let it load its model and take the first step: the loss, and the seconds of both.

        Raises:
            Failed: The peer cannot train this.
        """
        return self._ask("load")

    def run(self, steps: int) -> dict[str, Any]:
        """Take some steps.

        Raises:
            Failed: The process ended.
        """
        return self._ask(str(steps))

    def _ask(self, line: str) -> dict[str, Any]:
        if self._process.stdin is None:
            raise ValueError("The process was started without a pipe.")
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Failed(_ending(self._process.wait())) from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        if self._process.stdout is None:
            raise ValueError("The process was started without a pipe.")
        if not select.select([self._process.stdout], [], [], PATIENCE_SECONDS)[0]:
            self._process.kill()
            raise Failed(f"no answer within {PATIENCE_SECONDS:.0f} s.")
        line = self._process.stdout.readline()
        if not line:
            raise Failed(_ending(self._process.wait()))
        return _checked(json.loads(line))
