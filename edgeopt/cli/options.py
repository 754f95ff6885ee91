"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from edgeopt.cli.errors import CommandError

__all__ = [
    "BatchSize",
    "BundleOrFile",
    "BundlePath",
    "Data",
    "Json",
    "Providers",
    "Threads",
    "named_numbers",
    "named_sizes",
]

BundlePath = Annotated[Path, typer.Argument(exists=True, help="A bundle: a .edgeopt file or a folder.")]
BundleOrFile = Annotated[Path, typer.Argument(exists=True, help="A bundle, or an ONNX file.")]
Data = Annotated[
    Path,
    typer.Option("--data", exists=True, dir_okay=False, help="An .npz file; its arrays are named like the inputs."),
]
BatchSize = Annotated[int | None, typer.Option("--batch-size", min=1, help="Samples a batch. Default: 32.")]
Providers = Annotated[
    list[str] | None,
    typer.Option(
        "--provider",
        metavar="NAME",
        help="An execution provider of ONNX Runtime, in order of preference. Default: the CPU.",
    ),
]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="Threads within an operator. Default: all cores.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def named_numbers(pairs: Sequence[str]) -> dict[str, float]:
    """Read `name=value` pairs.

    Raises:
        CommandError: One of them looks otherwise.
    """
    numbers = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            numbers[name] = float(value)
        except ValueError as error:
            raise CommandError(f"{pair!r} sets no hyperparameter; write name=value, as in lr=1e-4.") from error
    return numbers


def named_sizes(pairs: Sequence[str]) -> dict[str, int]:
    """Read `name=size` pairs of dimensions.

    Raises:
        CommandError: One of them looks otherwise.
    """
    sizes = {}
    for pair in pairs:
        name, _, size = pair.partition("=")
        if not size.isdecimal():
            raise CommandError(f"{pair!r} sets no dimension; write name=size, as in batch=8.")
        sizes[name] = int(size)
    return sizes
