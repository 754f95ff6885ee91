"""What `edgeopt inspect` shows of an ONNX file: its constants, and what they would be in a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from edgeopt.cli.console import format_bytes, new_table, out, print_json
from edgeopt_exporters.onnx_file import Constant, Proposal, constants_of, proposals_of

__all__ = ["show_constants"]

_NAMED = 2
# Two moments of float32 for each number.
_ADAMW_BYTES = 8


def show_constants(file: Path, as_json: bool) -> None:
    """Print each floating-point constant of a file with its role and the reason."""
    constants, proposals = constants_of(file), proposals_of(file)
    if as_json:
        print_json(
            {
                "constants": [one.to_dict() for one in constants],
                "proposals": [one.to_dict() for one in proposals],
            }
        )
        return
    out.print(Text.assemble((str(file), "bold"), f"  {format_bytes(file.stat().st_size)}"))
    out.print()
    out.print(_table([one for one in constants if one.role != "setting" or one.elements > 1]))
    numbers = sum(one.role == "setting" and one.elements <= 1 for one in constants)
    if numbers:
        out.print(f"and {numbers} single numbers or empty tensors, settings of operators", style="dim")
    guesses = sum(not one.certain for one in constants)
    if guesses:
        out.print(f"{guesses} of these roles are guesses; `trainable=` says which parameters train", style="yellow")

    if proposals:
        out.print()
        out.print(_proposals(proposals))
        out.print("`--trainable` takes names and patterns of names; `--json` lists those of each choice", style="dim")


def _proposals(proposals: Sequence[Proposal]) -> Table:
    everything = proposals[-1].elements
    table = new_table(
        "what trains", "parameters", "", "AdamW keeps", "backward through", "names",
        title="What could train", numbers=("parameters", "", "AdamW keeps"),
    )  # fmt: skip # one column after the other
    for one in proposals:
        names = ", ".join(one.parameters[:_NAMED]) + (", …" if len(one.parameters) > _NAMED else "")
        share = f"{one.elements / everything:.1%}" if everything else ""
        state = format_bytes(_ADAMW_BYTES * one.elements)
        table.add_row(one.name, f"{one.elements:,}", share, state, f"{one.layers} of {one.of} layers", names)
    return table


def _table(constants: list[Constant]) -> Table:
    table = new_table("constant", "shape", "role", "reason", title="Constants")
    for one in constants:
        shape = " x ".join(map(str, one.shape)) or "scalar"
        role = Text(one.role if one.certain else f"{one.role}?", "" if one.certain else "yellow")
        table.add_row(one.name, shape, role, one.reason)
    return table
