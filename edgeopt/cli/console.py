"""How the command line looks: two consoles, tables, numbers, errors."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from edgeopt.cli.wording import in_options
from edgeopt.errors import EdgeoptError

__all__ = [
    "err",
    "format_bytes",
    "format_number",
    "new_table",
    "out",
    "print_json",
    "print_line",
    "show_error",
    "show_warning",
]

# Without a terminal there is no edge to break lines at: what reads a pipe wants whole names.
PIPE_WIDTH = 10_000


def _console(stream: TextIO, *, stderr: bool) -> Console:
    wide = None if stream.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
    return Console(stderr=stderr, width=wide, markup=False, highlight=False, emoji=False)


# Results go to stdout; progress and errors to stderr, so that results can be piped on. Names of tensors and files are
# printed as they are: a bracket in one of them is no markup.
out = _console(sys.stdout, stderr=False)
err = _console(sys.stderr, stderr=True)


def show_error(error: EdgeoptError) -> None:
    """Print an error of ours with its kind and code, in the words of the command line, without a traceback."""
    title = Text(f"{type(error).__name__} {error.code}", "bold red")
    message = Text(in_options(str(error)))
    if not err.is_terminal:
        err.print(Text.assemble(title, ": ", message), soft_wrap=True)
        return
    err.print(Panel(message, title=title, title_align="left", border_style="red", expand=False))


def show_warning(text: str) -> None:
    """Print a warning in a line."""
    err.print(Text.assemble(("warning: ", "yellow"), in_options(text)), soft_wrap=True)


def print_json(document: object) -> None:
    """Print a document for programs, readable for people; not through rich, which would break long lines."""
    print(json.dumps(_finite(document), indent=2, allow_nan=False))  # noqa: T201  # this is what it is for


def print_line(document: object) -> None:
    """Print a document in one line, at once: who reads a pipe does so while we go on."""
    print(json.dumps(_finite(document), allow_nan=False), flush=True)  # noqa: T201  # this is what it is for


def _finite(value: Any) -> Any:
    """The same with null for numbers that JSON does not have, and lists for arrays."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def new_table(*columns: str, title: str | None = None, numbers: tuple[str, ...] = ()) -> Table:
    """An empty table; the columns named in `numbers` are right-aligned."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns:
        right = column in numbers
        table.add_column(column, justify="right" if right else "left", no_wrap=right, overflow="fold")
    return table


def format_number(value: float) -> str:
    """A number in four digits or so: 0.9812, 3e-05, 12.35."""
    return f"{value:.4g}"


def format_bytes(count: int) -> str:
    """A size in the largest unit that leaves at least one: 12 B, 3.4 kB, 1.2 MB."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000.0:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000.0
    return f"{size:.1f} GB"
