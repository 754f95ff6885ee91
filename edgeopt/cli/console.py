"""How the command line looks: two consoles, tables, numbers, errors."""

from __future__ import annotations

from collections.abc import Mapping

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from edgeopt.errors import EdgeoptError

__all__ = ["err", "format_bytes", "format_number", "metrics_table", "new_table", "out", "show_error"]

# Results go to stdout; progress and errors to stderr, so that results can be piped on. Names of tensors and files are
# printed as they are: a bracket in one of them is no markup.
out = Console(markup=False, highlight=False, emoji=False)
err = Console(stderr=True, markup=False, highlight=False, emoji=False)


def show_error(error: EdgeoptError) -> None:
    """Print an error of ours with its kind and code, without a traceback."""
    title = Text(f"{type(error).__name__} {error.code}", "bold red")
    err.print(Panel(Text(str(error)), title=title, title_align="left", border_style="red", expand=False))


def new_table(*columns: str, title: str | None = None, numbers: tuple[str, ...] = ()) -> Table:
    """An empty table; the columns named in `numbers` are right-aligned."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns:
        right = column in numbers
        table.add_column(column, justify="right" if right else "left", no_wrap=right, overflow="fold")
    return table


def metrics_table(metrics: Mapping[str, float]) -> Table:
    """Metrics, one a row."""
    table = new_table("metric", "value", numbers=("value",))
    for name, value in metrics.items():
        table.add_row(name, format_number(value))
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
