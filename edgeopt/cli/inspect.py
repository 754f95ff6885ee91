"""`edgeopt inspect`: what a bundle holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from edgeopt.bundle import Bundle, Report
from edgeopt.cli.console import format_bytes, format_number, new_table, out, print_json
from edgeopt.cli.decisions import print_decisions
from edgeopt.cli.options import BundleOrFile, Json, named_sizes
from edgeopt.cli.output import size_of
from edgeopt.memory import Estimate

__all__ = ["inspect"]


Sizes = Annotated[
    list[str] | None,
    typer.Option(
        "--estimate", metavar="NAME=SIZE", help="Foretell the memory of a step instead, for these sizes: batch=8."
    ),
]


def inspect(bundle: BundleOrFile, as_json: Json = False, estimate: Sizes = None) -> None:
    """Show a bundle's tensors, inputs, hyperparameters and graphs; or what an ONNX file's constants are taken for."""
    if bundle.suffix == ".onnx" and bundle.is_file():
        # What reads ONNX files takes a while to import.
        from edgeopt.cli.constants import show_constants

        show_constants(bundle, as_json)
        return
    if estimate:
        _show_estimate(Bundle.load(bundle).estimate(**named_sizes(estimate)), as_json)
        return
    report = Bundle.load(bundle).inspect()
    if as_json:
        print_json(report.to_dict())
        return
    out.print(Text.assemble((str(bundle), "bold"), f"  {format_bytes(size_of(bundle))}"))
    needs = f"ONNX Runtime {report.minimum_onnxruntime} or newer"
    out.print(f"opset {report.opset}, IR {report.ir_version}, {needs}", style="dim")
    out.print(", ".join(f"{name} {value}" for name, value in report.producer.items() if value), style="dim")
    for table in (_tensors(report), _sizes(report), _inputs(report), _hyperparameters(report), _graphs(report)):
        out.print()
        out.print(table)
    if report.decisions:
        out.print("\nDecided by the export", style="bold")
        print_decisions(report.decisions, out)


def _show_estimate(found: Estimate, as_json: bool) -> None:
    if as_json:
        print_json(found.to_dict())
        return
    columns = ("parameters", "gradients", "optimizer", "activations")
    table = new_table("layer", *columns, title="By layer", numbers=columns)
    for layer in found.layers:
        numbers = (getattr(layer, column) for column in columns)
        table.add_row(layer.name, *(format_bytes(number) if number else "" for number in numbers))
    parts = new_table("part", "bytes", title="The most that a step takes", numbers=("bytes",))
    for part in ("runtime", "state", "written", "activations", "arena", "peak"):
        parts.add_row(part, format_bytes(getattr(found, part)))
    out.print(table)
    out.print()
    out.print(parts)
    out.print(f"Most is there in {found.where}.", style="dim")


def _tensors(report: Report) -> Table:
    table = new_table("tensor", "role", "dtype", "shape", "bytes", title="State", numbers=("bytes",))
    for row in report.tensors:
        role = f"{row.role}, frozen" if row.role == "parameter" and not row.trainable else row.role
        table.add_row(row.name, role, row.dtype, _shape(row.shape), f"{row.bytes:,}")
    return table


def _sizes(report: Report) -> Table:
    table = new_table("role", "tensors", "bytes", title="State by role", numbers=("tensors", "bytes"))
    for role, size in report.bytes_by_role.items():
        table.add_row(role, str(sum(row.role == role for row in report.tensors)), f"{size:,}")
    return table


def _inputs(report: Report) -> Table:
    table = new_table("name", "kind", "dtype", "shape", title="Inputs and outputs")
    for spec in report.inputs:
        table.add_row(spec.name, f"{spec.kind} input", spec.dtype, _shape(spec.shape))
    for output in report.outputs:
        table.add_row(output.name, "output", output.dtype, _shape(output.shape))
    return table


def _hyperparameters(report: Report) -> Table:
    table = new_table("hyperparameter", "value", "meaning", title="Hyperparameters", numbers=("value",))
    for spec in report.hyperparameters:
        table.add_row(spec.name, format_number(spec.default), spec.description)
    return table


def _graphs(report: Report) -> Table:
    table = new_table("graph", "bytes", "nodes", "operators", title="Graphs", numbers=("bytes", "nodes"))
    for row in report.graphs:
        operators = ", ".join(f"{name} {count}" for name, count in row.operators.items())
        table.add_row(row.name, f"{row.bytes:,}", str(row.nodes), operators)
    return table


def _shape(shape: Sequence[int | str]) -> str:
    return " x ".join(str(length) for length in shape) or "scalar"
