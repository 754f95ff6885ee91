"""Sequences and optional values whose contents are known: the tensors themselves in their place.

Exporters write a sequence where a program has a list; once positions and sizes are constants, each use of it is the use
of one of its tensors. What depends on the run stays, and is refused if a gradient has to pass it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from edgeopt.tracing import Array, Tracer
from edgeopt.tracing.inlining import inline
from edgeopt.tracing.rewriting import Replacement, replace_node
from edgeopt.tracing.site import Site
from edgeopt.tracing.subgraphs import bodies

__all__ = ["eliminate_sequences"]

# A list is a sequence, or an optional one that is there; a tuple is an optional tensor, empty where it is not there.
_Contents: TypeAlias = "list[Array] | tuple[Array, ...]"
_Known: TypeAlias = dict[ir.Value, _Contents]


def eliminate_sequences(graph: ir.Graph) -> None:
    """Replace, in place, what reads sequences of known contents; what made them is left for dead-code removal."""
    _eliminate(Tracer(graph), {})
    # Bodies included; onnx-ir before 1.0 cannot sort a body by itself.
    graph.sort()


def _eliminate(tracer: Tracer, known: _Known) -> None:
    for node in list(tracer.graph):
        for body in bodies(node):
            _eliminate(tracer.within(body), known)
        if node.domain:
            continue
        site = Site(tracer, node)
        if node.op_type == "SequenceMap":
            _map(site, known)
        if not _is_typed(node, known):
            continue
        if node.op_type in _MAKERS and (made := _MAKERS[node.op_type](site, known)) is not None:
            known[node.outputs[0]] = made
            _correct_type(node.outputs[0], made)
        elif node.op_type in _READERS and (found := _READERS[node.op_type](site, known)) is not None:
            replace_node(tracer, node, found)


def _is_typed(node: ir.Node, known: _Known) -> bool:
    """Whether the type of every tensor that goes in is known, so that something else can be made of it."""
    tensors = [value for value in node.inputs if value is not None and value not in known and not _is_list(value)]
    return all(value.dtype is not None and value.shape is not None for value in tensors)


def _is_list(value: ir.Value) -> bool:
    return isinstance(value.type, (ir.SequenceType, ir.OptionalType))


def _correct_type(value: ir.Value, contents: _Contents) -> None:
    """torch declares some sequences to be tensors, which the inference of everything else stumbles over."""
    if isinstance(contents, list) and contents and isinstance(value.type, ir.TensorType):
        value.type, value.shape = ir.SequenceType(ir.TensorType(contents[0].value.dtype or value.type.dtype)), None


def _list(n: Site, known: _Known, position: int = 0) -> list[Array] | None:
    contents = _contents(n, known, position)
    return contents if isinstance(contents, list) else None


def _contents(n: Site, known: _Known, position: int = 0) -> _Contents | None:
    value = n.node.inputs[position] if position < len(n.node.inputs) else None
    return None if value is None else known.get(value)


def _position(n: Site, index: int, count: int) -> int | None:
    """A constant position, counted from the front."""
    constant = n.constant(index)
    return None if constant is None else int(constant) % max(count, 1)


def _insert(n: Site, known: _Known) -> list[Array] | None:
    tensors = _list(n, known)
    if tensors is None:
        return None
    # Without a position the tensor comes last; a negative one counts from the end of the sequence as it was.
    at = n.constant(2) if n.has(2) else np.asarray(len(tensors))
    if at is None:
        return None
    position = int(at) + (len(tensors) if at < 0 else 0)
    return [*tensors[:position], n.input(1), *tensors[position:]]


def _erase(n: Site, known: _Known) -> list[Array] | None:
    tensors = _list(n, known)
    if tensors is None:
        return None
    position = _position(n, 1, len(tensors)) if n.has(1) else len(tensors) - 1
    return None if position is None else [*tensors[:position], *tensors[position + 1 :]]


def _split(n: Site, _known: _Known) -> list[Array] | None:
    """Pieces of given sizes, of one size, or of size one, whose axis can then be left out."""
    axis = int(n.attr("axis", 0))
    length = n.x.shape[axis]
    sizes = n.constant(1) if n.has(1) else np.asarray(1)
    if sizes is None or (sizes.ndim == 0 and not isinstance(length, int)):
        return None
    if sizes.ndim == 0 and isinstance(length, int):
        bounds = [*range(0, length, int(sizes)), length]
    else:
        bounds = [0, *accumulate(int(size) for size in sizes)]
    lengths = [last - first for first, last in pairwise(bounds)]
    pieces = list(n.tracer.emit("Split", n.x, lengths, axis=axis, outputs=len(lengths)))
    if n.has(1) or n.attr("keepdims", 1):
        return pieces
    return [n.tracer.emit("Squeeze", piece, [axis]) for piece in pieces]


def _optional(n: Site, known: _Known) -> _Contents | None:
    if not n.has(0):
        return ()
    sequence = _list(n, known)
    return (n.x,) if sequence is None and isinstance(n.x.value.type, ir.TensorType) else sequence


_MAKERS: dict[str, Callable[[Site, _Known], _Contents | None]] = {
    "Identity": _contents,
    "Optional": _optional,
    "OptionalGetElement": _list,
    "SequenceConstruct": lambda n, _: [n.input(i) for i in range(len(n.inputs))],
    "SequenceEmpty": lambda n, _: [],
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SplitToSequence": _split,
}


def _at(n: Site, known: _Known) -> Replacement | None:
    tensors = _list(n, known)
    position = None if tensors is None else _position(n, 1, len(tensors))
    return None if tensors is None or position is None else tensors[position]


def _length(n: Site, known: _Known) -> Replacement | None:
    tensors = _list(n, known)
    return None if tensors is None else n.tracer.constant(np.int64(len(tensors)))


def _concatenate(n: Site, known: _Known) -> Replacement | None:
    tensors = _list(n, known)
    if not tensors:
        return None
    axis = int(n.attr("axis"))
    if n.attr("new_axis", 0):
        tensors = [n.tracer.emit("Unsqueeze", tensor, [axis]) for tensor in tensors]
    return n.tracer.emit("Concat", *tensors, axis=axis)


def _has_element(n: Site, known: _Known) -> Replacement | None:
    contents = _contents(n, known)
    if not n.has(0) or contents == ():
        return n.tracer.constant(np.bool_(False))
    there = contents is not None or isinstance(n.x.value.type, ir.TensorType)
    return n.tracer.constant(np.bool_(True)) if there else None


def _get_element(n: Site, known: _Known) -> Replacement | None:
    contents = _contents(n, known)
    if contents is None and isinstance(n.x.value.type, ir.TensorType):
        return n.x
    return contents[0] if isinstance(contents, tuple) and contents else None


_READERS: dict[str, Callable[[Site, _Known], Replacement | None]] = {
    "ConcatFromSequence": _concatenate,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
    "SequenceAt": _at,
    "SequenceLength": _length,
}


def _map(n: Site, known: _Known) -> None:
    """The body once for each tensor of the first sequence."""
    tensors = _list(n, known)
    if tensors is None:
        return
    body: ir.Graph = n.attr("body")
    results = [inline(n.tracer, body, _arguments(n, known, index)) for index in range(len(tensors))]
    for position, output in enumerate(n.node.outputs):
        known[output] = [result[position] for result in results]


def _arguments(n: Site, known: _Known, index: int) -> Sequence[Any]:
    """Of each sequence the tensor at a position, and every tensor as it is."""
    lists = [_list(n, known, position) for position in range(len(n.inputs))]
    return [n.input(i) if tensors is None else tensors[index] for i, tensors in enumerate(lists)]
