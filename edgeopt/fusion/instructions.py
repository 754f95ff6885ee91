"""The instructions of a chain: what a native kernel computes element by element, and how it numbers it.

The numbers are those of `runtime/native/src/kernels/chain/program.h`, and never change.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["COPY", "INSTRUCTIONS", "REDUCTIONS", "VERSION", "Instruction"]

#: What a kernel must know to run a program; a kernel refuses a newer one.
VERSION = 1


class Instruction(NamedTuple):
    """An elementwise operator: its number, how many operands it takes, and whether more are folded from the left."""

    code: int
    operands: int
    folds: bool = False


COPY = Instruction(1, 1)

#: By ONNX operator. Truth values are the numbers 0 and 1.
INSTRUCTIONS = {
    "Add": Instruction(2, 2),
    "Sub": Instruction(3, 2),
    "Mul": Instruction(4, 2),
    "Div": Instruction(5, 2),
    "Max": Instruction(6, 2, folds=True),
    "Min": Instruction(7, 2, folds=True),
    "Pow": Instruction(8, 2),
    "Sum": Instruction(2, 2, folds=True),
    "Neg": Instruction(9, 1),
    "Abs": Instruction(10, 1),
    "Sqrt": Instruction(11, 1),
    "Reciprocal": Instruction(12, 1),
    "Exp": Instruction(13, 1),
    "Log": Instruction(14, 1),
    "Sign": Instruction(15, 1),
    "Tanh": Instruction(16, 1),
    "Sigmoid": Instruction(17, 1),
    "Floor": Instruction(18, 1),
    "Ceil": Instruction(19, 1),
    "Round": Instruction(20, 1),
    "Not": Instruction(21, 1),
    "And": Instruction(22, 2),
    "Or": Instruction(23, 2),
    "Equal": Instruction(24, 2),
    "Less": Instruction(25, 2),
    "LessOrEqual": Instruction(26, 2),
    "Greater": Instruction(27, 2),
    "GreaterOrEqual": Instruction(28, 2),
    "IsNaN": Instruction(29, 1),
    "IsInf": Instruction(30, 1),
    "Where": Instruction(31, 3),
}

#: Ways to make one number of all elements. `Finite` is 0 if all are finite, and NaN if not.
REDUCTIONS = {"ReduceSum": 1, "ReduceMax": 2, "ReduceMin": 3, "Finite": 4}
