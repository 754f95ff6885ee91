"""What happened, line by line in a file."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from edgeopt_runtime.atomic import storage_errors
from edgeopt_runtime.callbacks.numbers import numbers_of
from edgeopt_runtime.errors import CallbackError
from edgeopt_runtime.fit import FitInfo

if TYPE_CHECKING:
    from edgeopt_runtime.session import TrainingSession

__all__ = ["CSVLog", "JSONLinesLog"]

Each = Literal["epoch", "step"]


class _Log:
    """A file that gets a line for each step or epoch; what was written is there at once."""

    def __init__(self, path: str | os.PathLike[str], *, each: Each = "epoch", append: bool = False) -> None:
        if each not in ("epoch", "step"):
            raise CallbackError(f'`each` must be "epoch" or "step", not {each!r}.')
        self._path, self._each, self._begun = Path(path), each, append
        # What cannot be written is said before the training; what was there goes when there is something else.
        with storage_errors(self._path), self._path.open("a+", encoding="utf-8", newline="") as file:
            file.seek(0)
            text = file.read() if append else ""
            # A crash may have cut the last line off.
            if text and not text.endswith("\n"):
                file.write("\n")

    def _write(self, text: str) -> None:
        with (
            storage_errors(self._path),
            self._path.open("a" if self._begun else "w", encoding="utf-8", newline="") as file,
        ):
            file.write(text)
        self._begun = True


class JSONLinesLog(_Log):
    """A JSON object a line: ``{"epoch": 1, "step": 40, "loss": 0.41, ...}``; arrays are lists, NaN and infinity null.

    Args:
        path: The file.
        each: A line for each ``epoch``, or for each ``step``.
        append: Go on after what the file holds, instead of beginning anew.

    Raises:
        CallbackError: A setting has no meaning.
        StorageError: The file cannot be written, also when it is called.
    """

    def __call__(self, session: TrainingSession, info: FitInfo) -> None:
        """Write a line."""
        if info.event == self._each:
            line = {"epoch": info.epoch, "step": info.step, **info.metrics}
            self._write(json.dumps(_plain(line), allow_nan=False, ensure_ascii=False) + "\n")


class CSVLog(_Log):
    """A table with a header and a column for each number; arrays are left out, and NaN is ``nan``.

    The columns are those of the first line, or of the file that is appended to.

    Args:
        path: The file.
        each: A line for each ``epoch``, or for each ``step``.
        append: Go on after what the file holds, instead of beginning anew.

    Raises:
        CallbackError: A setting has no meaning; or, when it is called, a number has no column.
        StorageError: The file cannot be written, also when it is called.
    """

    _columns: tuple[str, ...] = ()

    def __call__(self, session: TrainingSession, info: FitInfo) -> None:
        """Write a line."""
        if info.event != self._each:
            return
        row = {"epoch": info.epoch, "step": info.step, **numbers_of(info.metrics)}
        if not self._columns:
            self._columns = self._read_header()
        if not self._columns:
            self._columns = tuple(row)
            self._write(_line(self._columns))
        if lost := [name for name in row if name not in self._columns]:
            raise CallbackError(
                f"{self._path.name} has no column for {', '.join(lost)}; its columns are {', '.join(self._columns)}. "
                "Begin another file, or take JSONLinesLog, whose lines may differ."
            )
        self._write(_line([row.get(name, "") for name in self._columns]))

    def _read_header(self) -> tuple[str, ...]:
        if not self._begun:
            return ()
        with self._path.open(encoding="utf-8", newline="") as file:
            return tuple(next(csv.reader(file), ()))


def _line(cells: Any) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
