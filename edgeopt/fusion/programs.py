"""The program of a chain: what its kernel does, as whole numbers, and the numbers it computes with.

    version,
    inputs,  then of each its number of elements, or -1 for a number,
    outputs, then of each its rank and shape; before them, for a reduction to a number, -1 and the kind of it,
    sections, then of each:
        loads, stores, reductions, instructions,
        of each instruction its code, its number of operands, and the operands,
        of each store the operand,
        of each reduction the operand and the output,
        units, then of each its number of elements, input and offset of each load, output (-1 for none) and offset of
            each store.

A section is the same arithmetic for several vectors, its units. An operand is four times a place plus what it is: 0 the
result of an instruction, 1 a load, 2 an input that is a number, 3 a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edgeopt.fusion.instructions import VERSION

__all__ = ["CONSTANT", "LOAD", "NOWHERE", "NUMBER", "RESULT", "OutputPort", "Section", "Unit", "encode", "operand"]

RESULT, LOAD, NUMBER, CONSTANT = range(4)

#: The output of a store that a unit does without.
NOWHERE = -1


class Section(NamedTuple):
    """Arithmetic that several vectors go through."""

    loads: int
    instructions: tuple[tuple[int, ...], ...]
    stores: tuple[int, ...]
    reductions: tuple[tuple[int, int], ...]


class Unit(NamedTuple):
    """A vector: how long it is, and from where to where its elements go."""

    size: int
    loads: tuple[tuple[int, int], ...]
    stores: tuple[tuple[int, int], ...]


class OutputPort(NamedTuple):
    """The shape of an output, and the kind of reduction that it holds, 0 for none."""

    shape: tuple[int, ...]
    reduction: int


def operand(kind: int, place: int) -> int:
    """An operand of an instruction."""
    return 4 * place + kind


def encode(
    inputs: Sequence[int], outputs: Sequence[OutputPort], sections: Sequence[tuple[Section, Sequence[Unit]]]
) -> list[int]:
    """Write a program down."""
    words = [VERSION, len(inputs), *inputs, len(outputs)]
    for port in outputs:
        words += [-1, port.reduction] if port.reduction else []
        words += [len(port.shape), *port.shape]
    words.append(len(sections))
    for section, units in sections:
        words += [section.loads, len(section.stores), len(section.reductions), len(section.instructions)]
        for code, *operands in section.instructions:
            words += [code, len(operands), *operands]
        words += section.stores
        words += [word for pair in section.reductions for word in pair]
        words.append(len(units))
        for unit in units:
            words += [unit.size, *(word for pair in (*unit.loads, *unit.stores) for word in pair)]
    return words
