"""Which dimensions of the inputs are the same, as the captured programs have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edgeopt_exporters.pytorch.capture import Program, input_shapes, is_used
from edgeopt_exporters.pytorch.inputs import Examples
from edgeopt_runtime.manifest import Decision

__all__ = ["distinguished"]


def distinguished(examples: Examples, programs: Sequence[Program]) -> Examples:
    """Give one name to dimensions that a program computes with as one, and another to a batch that only looks like it.

    torch gives each dimension a symbol of its own, and makes two of them one where the module needs them equal. Axis 0
    of an input that has the size of the batch by chance (two rows of edges beside two nodes) stays apart.
    """
    shapes = [input_shapes(program) for program in programs]
    # The symbols that each name has in each program.
    known: list[tuple[str, set[tuple[int, Any]]]] = []
    decisions = list(examples.decisions)
    dimensions = []
    for place, (name, own) in enumerate(zip(examples.names, examples.dimensions, strict=True)):
        renamed = {}
        for axis, symbol in own.items():
            symbols = {(number, each[place][axis]) for number, each in enumerate(shapes)}
            other = next((before for before, theirs in known if theirs & symbols), None)
            new = other or symbol
            if other is None and any(symbol == before for before, _ in known):
                if (name, axis) not in examples.asked and any(is_used(program, place) for program in programs):
                    new = f"{name}_{symbol}"
                    text = f"Axis {axis} of `{name}` is the dimension `{new}`: nothing ties it to `{symbol}`."
                    decisions.append(Decision("symbolic", new, text))
            elif new != symbol and (name, axis) in examples.asked:
                text = f"The dimension `{symbol}` is always as large as `{new}`, and is called that."
                decisions.append(Decision("symbolic", new, text))
            known.append((new, symbols))
            renamed[axis] = new
        dimensions.append(renamed)
    return replace(examples, dimensions=tuple(dimensions), decisions=tuple(decisions))
