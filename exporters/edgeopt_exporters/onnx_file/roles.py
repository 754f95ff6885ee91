"""What a constant of a file is: a parameter, a running statistic, or a setting of an operator.

A file does not say. What the operators do with a tensor says it in most cases, its values in some, and its name is
evidence too; where all this leaves a doubt, the guess says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from edgeopt.tracing.site import qualified_name
from edgeopt.tracing.subgraphs import bodies, captured
from edgeopt_exporters.onnx_file.patterns import pattern_of
from edgeopt_exporters.onnx_file.role_table import ARITHMETIC, PASSING, PRODUCTS, Kind, row_of

__all__ = ["Flow", "Role", "RoleGuess", "Use", "is_statistic", "role_of"]


class Role(Enum):
    """What becomes of a constant."""

    PARAMETER = "trained by default"
    FROZEN = "trained if asked for by name"
    STATISTIC = "part of the state, moved by BatchNormalization in training mode"
    SETTING = "stays a constant of the graph"


@dataclass(frozen=True)
class RoleGuess:
    """A role and why.

    Attributes:
        role: What becomes of the constant.
        reason: What speaks for it, in a few words.
        certain: Whether nothing speaks against it.
        otherwise: What it would be if its values said nothing.
    """

    role: Role
    reason: str
    certain: bool = True
    otherwise: Role | None = None


@dataclass(frozen=True)
class Use:
    """A node that reads a tensor.

    Attributes:
        node: The node.
        position: As which of its inputs.
        value: The tensor that it reads: the one asked for, or what was made of it.
        computed: Whether something was computed on the way, and not only given another form.
    """

    node: ir.Node
    position: int
    value: ir.Value
    computed: bool = False


# In the last part of a name.
_OF_WEIGHTS = re.compile(
    r"weight|kernel|bias|gamma|beta|embed|token|lora|alpha|slope|scale|gain|shift|^[wbg]\d*$", re.I
)
_OF_STATISTICS = re.compile(r"(running|moving)_?(mean|var)", re.I)
# As exporters name what they made themselves.
_MADE_UP = re.compile(
    r"^\d+$|^_?val_\d+$|constant(_\d+)?(_output_\d+)?$|^onnx::\w+_\d+$|const_fold_opt|^_?const|zeros?(_bias)?(_\d+)?$",
    re.I,
)
_NORMALISERS = frozenset(
    {"BatchNormalization", "Div", "InstanceNormalization", "LayerNormalization", "MeanVarianceNormalization"}
)
_INVERSES = frozenset({"Reciprocal", "Div", "Pow"})
_CHANNELS = (1, 3, 4)
_CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})


class Flow:
    """What in a graph depends on its inputs; the rest is computed from constants alone."""

    def __init__(self, graph: ir.Graph) -> None:
        self._derived: set[ir.Value] = set(graph.inputs) - set(graph.initializers.values())
        self._returned: dict[ir.Value, list[ir.Value]] = {}
        self._visit(graph)

    def depends(self, value: ir.Value | None) -> bool:
        """Whether a tensor changes with what goes into the graph."""
        return value in self._derived

    def uses(self, value: ir.Value, *, computed: bool = False) -> Iterator[Use]:
        """The nodes that read a tensor, through what gives it another form and what is computed of constants."""
        for node, position in value.uses():
            if node.op_type in _CONTROL_FLOW and not node.domain:
                yield from self._inside(node, position, value, computed)
            elif node.op_type in PASSING and position == 0 and not node.domain:
                # One number for all elements is not what a layer has trained.
                spread = computed or node.op_type in ("Expand", "Tile")
                for output in node.outputs:
                    yield from self.uses(output, computed=spread)
            elif not any(self.depends(output) for output in node.outputs) and self._is_part(node, position):
                for output in node.outputs:
                    yield from self.uses(output, computed=True)
            else:
                yield Use(node, position, value, computed)
        for output in self._returned.get(value, ()):
            yield from self.uses(output, computed=computed)

    def source(self, value: ir.Value | None) -> ir.Node | None:
        """The node that computes a tensor, seen through what gives it another form; None for inputs and constants."""
        producer = None if value is None else value.producer()
        while producer is not None and producer.op_type in PASSING and producer.inputs[0] is not None:
            value = producer.inputs[0]
            producer = value.producer()
        return producer

    def is_input(self, value: ir.Value | None) -> ir.Value | None:
        """The input of the graph that a tensor is, but for its form and constants added or multiplied."""
        while value is not None and self.depends(value):
            producer = value.producer()
            if producer is None:
                return value
            moved = [operand for operand in producer.inputs if self.depends(operand)]
            if len(moved) != 1 or producer.op_type not in PASSING | ARITHMETIC:
                return None
            (value,) = moved
        return None

    def _visit(self, graph: ir.Graph) -> None:
        for node in graph:
            inner = bodies(node)
            moved = any(map(self.depends, node.inputs)) or any(map(self.depends, captured(node) if inner else ()))
            for body in inner:
                if moved or node.op_type in ("Loop", "Scan"):
                    self._derived.update(body.inputs)
                self._visit(body)
                offset = 1 if node.op_type == "Loop" else 0
                for result, output in zip(body.outputs[offset:], node.outputs, strict=False):
                    self._returned.setdefault(result, []).append(output)
                    moved = moved or self.depends(result)
            random = node.op_type.startswith("Random")
            if moved or random:
                self._derived.update(node.outputs)

    @staticmethod
    def _is_part(node: ir.Node, position: int) -> bool:
        """Whether what a node computes of constants is made of this input: a shape, say, is not made of a weight."""
        row = row_of(node, position)
        return node.op_type not in ("Shape", "Size") and (row is None or row.kind != "setting")

    def _inside(self, node: ir.Node, position: int, value: ir.Value, computed: bool) -> Iterator[Use]:
        """What the body of a Loop or Scan does with a tensor that goes in."""
        first = 2 if node.op_type == "Loop" else 0
        if node.op_type == "If" or position < first:
            return
        for body in bodies(node):
            inner = body.inputs[position] if position < len(body.inputs) else None
            if inner is not None:
                yield from self.uses(inner, computed=computed)


def is_statistic(use: Use) -> bool:
    """Whether a running mean or variance is read."""
    row = row_of(use.node, use.position)
    return row is not None and row.kind == "statistic"


def role_of(flow: Flow, value: ir.Value, array: NDArray[np.generic]) -> RoleGuess:
    """The role of a constant with this value."""
    uses = list(flow.uses(value))
    name = (value.name or "").rsplit("/", 1)[-1].rsplit(".", 1)[-1]
    if not uses or array.size == 0:
        return RoleGuess(Role.SETTING, "nothing reads it" if array.size else "it is empty")
    guesses = [_by_use(flow, use, array) for use in uses]
    # What one layer trains, the others share.
    guess = min(guesses, key=lambda guess: (_RANK[guess.role], not guess.certain))
    if guess.role in (Role.SETTING, Role.STATISTIC):
        return guess
    if _OF_STATISTICS.search(value.name or ""):
        return RoleGuess(Role.FROZEN, "its name is that of a running statistic")
    if array.size > 1 and (pattern := pattern_of(array)) is not None:
        if "masks" in pattern:
            return RoleGuess(Role.SETTING, pattern)
        return RoleGuess(Role.FROZEN, pattern, certain=not _OF_WEIGHTS.search(name), otherwise=guess.role)
    if guess.role is Role.PARAMETER and _is_made_up(value.name or "", array):
        return RoleGuess(Role.FROZEN, "zeros under a name that an exporter made up", certain=False)
    if guess.role is Role.PARAMETER and not guess.certain and _OF_WEIGHTS.search(name):
        return replace(guess, reason=f"{guess.reason}, under the name of a weight", certain=True)
    return guess


_RANK = {Role.PARAMETER: 0, Role.FROZEN: 1, Role.STATISTIC: 2, Role.SETTING: 3}


def _is_made_up(name: str, array: NDArray[Any]) -> bool:
    return array.size > 1 and not array.any() and _MADE_UP.search(name) is not None


def _by_use(flow: Flow, use: Use, array: NDArray[Any]) -> RoleGuess:
    """The role that one use suggests."""
    node, kind, reason = use.node, *_row(use)
    if kind == "statistic":
        number = use.computed and array.size == 1
        return RoleGuess(Role.SETTING, f"a number in the {reason}") if number else RoleGuess(Role.STATISTIC, reason)
    if kind == "setting":
        return RoleGuess(Role.SETTING, reason)
    if kind == "weight":
        if use.computed:
            # Numbers such as an epsilon, of which weights are computed, are none.
            scalar = RoleGuess(Role.SETTING, f"a number in what is computed for the {reason}")
            is_number = array.size == 1 and (not array.ndim or not array.any())
            return scalar if is_number else RoleGuess(Role.PARAMETER, f"part of the {reason}")
        return RoleGuess(Role.PARAMETER, reason)
    if node.op_type in ARITHMETIC and not node.domain:
        return _by_arithmetic(flow, use, array)
    if array.size == 1:
        return RoleGuess(Role.SETTING, f"a single number that {qualified_name(node)} reads")
    if kind == "state":
        if not array.any():
            return RoleGuess(Role.SETTING, f"zeros: {reason}")
        return RoleGuess(Role.PARAMETER, reason, certain=False)
    if _is_uniform(array):
        return RoleGuess(Role.SETTING, f"the same number everywhere, which {qualified_name(node)} reads")
    return RoleGuess(Role.PARAMETER, f"read by {qualified_name(node)}", certain=False)


def _row(use: Use) -> tuple[Kind, str]:
    row = row_of(use.node, use.position)
    return ("data", "") if row is None else (row.kind, row.reason)


def _by_arithmetic(flow: Flow, use: Use, array: NDArray[Any]) -> RoleGuess:
    node, position = use.node, use.position
    others = [value for at, value in enumerate(node.inputs) if at != position and flow.depends(value)]
    other = others[0] if others else None
    source = flow.source(other)
    # Channels of a bias have an axis of their own, a number has none.
    if node.op_type == "Add" and source is not None and source.op_type in PRODUCTS and array.ndim:
        return RoleGuess(Role.PARAMETER, f"added to what a {source.op_type} gives: a bias")
    if array.size == 1:
        return RoleGuess(Role.SETTING, f"a single number in a {node.op_type}")
    if _prepares_input(flow, node, other, array):
        return RoleGuess(Role.FROZEN, f"in a {node.op_type} with the input itself: measured of the data")
    if node.op_type == "Sub" and position == 0 and _is_uniform(array):
        return RoleGuess(Role.SETTING, "the same number everywhere, from which something is subtracted")
    if node.op_type not in ("Add", "Mul", "Sum"):
        return RoleGuess(Role.FROZEN, f"operand of a {node.op_type}, which hardly ever reads a weight", certain=False)
    if _is_normalised(flow, source):
        word = "scale" if node.op_type == "Mul" else "shift"
        return RoleGuess(Role.PARAMETER, f"{word} behind a normalisation")
    if node.op_type == "Add" and source is not None and source.op_type == "Mul" and _has_constant(flow, source):
        return RoleGuess(Role.PARAMETER, "shift behind a scale")
    return RoleGuess(Role.PARAMETER, f"operand of a {node.op_type}", certain=False)


def _prepares_input(flow: Flow, node: ir.Node, other: ir.Value | None, array: NDArray[Any]) -> bool:
    """Whether this is what was measured of the data: at the very input, and, of sums and products, one for a colour."""
    data = flow.is_input(other)
    if data is None:
        return False
    if node.op_type in ("Sub", "Div"):
        return True
    rank = 0 if data.shape is None else data.shape.rank()
    return node.op_type in ("Add", "Mul") and rank == 4 and array.size in _CHANNELS and array.ndim >= 3


def _is_normalised(flow: Flow, source: ir.Node | None) -> bool:
    if source is None:
        return False
    if source.op_type in _NORMALISERS:
        return True
    factors = [flow.source(value) for value in source.inputs] if source.op_type == "Mul" else []
    return any(factor is not None and factor.op_type in _INVERSES for factor in factors)


def _has_constant(flow: Flow, node: ir.Node) -> bool:
    return any(value is not None and not flow.depends(value) for value in node.inputs)


def _is_uniform(array: NDArray[Any]) -> bool:
    return bool((array == array.flat[0]).all())
