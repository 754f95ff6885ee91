"""What an evaluation gives, as tables: numbers, one a row, then arrays, such as a confusion matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from edgeopt.cli.console import format_number, new_table

__all__ = ["print_results"]

# Wider matrices do not fit next to each other's numbers in a terminal, longer lists not on its screen.
WIDEST, LONGEST, LARGEST = 16, 50, 10


def print_results(console: Console, results: Mapping[str, Any]) -> None:
    """Print numbers and arrays."""
    numbers = new_table("metric", "value", numbers=("value",))
    for name, value in results.items():
        if not np.ndim(value):
            numbers.add_row(name, format_number(value))
    console.print(numbers)
    for name, value in results.items():
        if np.ndim(value):
            console.print(_table(name, np.asarray(value)))


def _table(name: str, array: np.ndarray[Any, Any]) -> Table:
    if array.ndim == 1:
        return _vector(name, array)
    if array.ndim == 2 and array.shape[1] <= WIDEST and array.shape[0] <= LONGEST:
        return _matrix(name, array)
    return _largest(name, array)


def _vector(name: str, array: np.ndarray[Any, Any]) -> Table:
    table = new_table("class", "value", title=name, numbers=("class", "value"))
    for place, value in enumerate(array[:LONGEST]):
        table.add_row(str(place), format_number(value))
    if len(array) > LONGEST:
        table.caption = f"the first {LONGEST} of {len(array)}; --json prints all"
    return table


def _matrix(name: str, array: np.ndarray[Any, Any]) -> Table:
    """Rows and columns with their numbers; what lies on the diagonal is bold, what is 0 dim."""
    columns = [str(place) for place in range(array.shape[1])]
    corner = "label \\ predicted" if array.shape[0] == array.shape[1] else ""
    table = new_table(corner, *columns, title=name, numbers=(corner, *columns))
    for row, values in enumerate(array):
        cells = [
            Text(_entry(value), style="dim" if not value else "bold" if row == column else "")
            for column, value in enumerate(values)
        ]
        table.add_row(Text(str(row), style="bold"), *cells)
    return table


def _largest(name: str, array: np.ndarray[Any, Any]) -> Table:
    """Of a large array the largest elements; of a square matrix those beside its diagonal, which are what is wrong."""
    square = array.ndim == 2 and array.shape[0] == array.shape[1]
    shown = np.nan_to_num(array) * (1 - np.eye(len(array))) if square else np.nan_to_num(array)
    headings = ("label", "predicted") if square else tuple(f"axis {axis}" for axis in range(array.ndim))
    shape = " x ".join(map(str, array.shape))
    what = "what is confused most" if square else "the largest elements"
    table = new_table(*headings, "value", title=f"{name}, {shape}: {what}", numbers=(*headings, "value"))
    for place in np.argsort(-shown, axis=None, kind="stable")[:LARGEST]:
        at = np.unravel_index(place, array.shape)
        if shown[at]:
            table.add_row(*map(str, at), _entry(float(array[at])))
    table.caption = "--json prints all"
    return table


def _entry(value: float) -> str:
    """Counts in full, other numbers in four digits."""
    return f"{value:.0f}" if float(value).is_integer() else format_number(value)
