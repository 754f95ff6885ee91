"""A file made for a fixed number of examples, taken for any number of them.

Exporters write the number of examples down wherever a shape is: in targets of Reshape and Expand, in ends of Slice, in
the shapes of initial states. Which axis holds the examples is found by giving the inputs another size, and inferring
the shapes anew, node by node; what was written down for the old size is replaced on the way. Whether the result is
right, a trial has to show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from edgeopt.canonical import simplify
from edgeopt.canonical.copies import copied
from edgeopt.errors import TracingError
from edgeopt.tracing import OPSET, Array, Tracer
from edgeopt.tracing.array import ArrayLike
from edgeopt.tracing.inference import infer
from edgeopt.tracing.shapes import from_ir, is_static
from edgeopt_exporters.onnx_file.examples import BATCH

__all__ = ["make_batch_symbolic", "number_of_examples"]

# A size that no dimension has by chance.
_OTHER = 7919
_TO_THE_END = np.iinfo(np.int64).max
_BROADCAST = frozenset(
    {"Add", "And", "BitwiseAnd", "BitwiseOr", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}
    | {"MatMul", "Max", "Mean", "Min", "Mod", "Mul", "Or", "PRelu", "Pow", "Sub", "Sum", "Where", "Xor"}
)
_RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
# Operators all of whose inputs have the examples at the same axis.
_ALIGNED = frozenset({"Concat", "GatherElements", "GridSample", "RotaryEmbedding", "ScatterElements"})


def number_of_examples(model: ir.Model, inputs: Sequence[str]) -> int | str:
    """The size of axis 0 of every input; or in words, why there is none."""
    sizes: dict[int, str] = {}
    for value in model.graph.inputs:
        if value.name not in inputs or (value.shape is not None and not value.shape.rank()):
            continue
        shape = None if value.shape is None else from_ir(value.shape)
        if shape is None or not is_static(shape):
            return f"the shape of {value.name!r} is not fixed as a whole"
        sizes.setdefault(int(shape[0] or 0), value.name or "")
    if len(sizes) != 1:
        said = ", ".join(f"{size} in {name!r}" for size, name in sizes.items())
        return f"the inputs differ in axis 0: {said}" if sizes else "no input has an axis"
    (size,) = sizes
    return size or "an input is empty"


def make_batch_symbolic(model: ir.Model, inputs: Sequence[str], count: int) -> ir.Model | str:
    """A copy whose inputs have the symbolic first dimension "batch" in place of `count`; or why that cannot be.

    Args:
        model: In canonical form.
        inputs: Names of its inputs; the graph's others are weights.
        count: Axis 0 of every input.
    """
    copy = copied(model)
    graph = copy.graph
    if drawn := [node.name for node in graph if node.op_type in ("RandomNormal", "RandomUniform") and not node.domain]:
        return f"{drawn[0]!r} draws random numbers for so many"
    walk = _Walk(Tracer(graph), count)
    moving = [value for value in graph.inputs if value.name in inputs and value.shape]
    for value in moving:
        walk.move(value)
    for node in list(graph):
        try:
            walk.visit(node)
        except TracingError:
            return f"{node.op_type} {node.name!r} takes no other number of them"
    graph.sort()
    if not any(walk.axis(value) is not None for value in graph.outputs):
        return f"no output has their number ({count}) as a dimension"
    known = {value: walk.named(value) for node in graph for value in node.outputs}
    for value in moving:
        value.shape = ir.Shape([BATCH, *list(value.shape or [])[1:]])
    for node in ir.traversal.RecursiveGraphIterator(graph):
        for value in node.outputs:
            value.shape = known.get(value)
    simplify(copy)
    return copy


class _Walk:
    """Nodes in order, with the shapes that tensors have for the old number of examples and for another."""

    def __init__(self, tracer: Tracer, count: int) -> None:
        self._tracer, self._count = tracer, count
        graph = tracer.graph
        values = [*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)]
        # How many elements of the same axis are outside of the examples: positions merged with examples, say.
        self._outside: dict[ir.Value, int] = {}
        self._before = {value: from_ir(value.shape) for value in values if value.shape is not None}

    def move(self, value: ir.Value) -> None:
        """Give an input another number of examples."""
        value.shape = ir.Shape([self._count * _OTHER, *list(value.shape or [])[1:]])

    def axis(self, value: ir.Value | None) -> int | None:
        """The axis of a tensor that holds the examples, None where none does or it cannot be told."""
        if value is None or value.shape is None or value not in self._before:
            return None
        pairs = zip(self._before[value], from_ir(value.shape), strict=False)
        moved = [axis for axis, (old, new) in enumerate(pairs) if old != new]
        return moved[0] if len(moved) == 1 else None

    def named(self, value: ir.Value) -> ir.Shape | None:
        """The shape of a tensor, whose examples are the batch."""
        if value.shape is None or value not in self._before:
            return value.shape
        dims: list[Any] = list(from_ir(value.shape))
        if (axis := self.axis(value)) is not None:
            dims[axis] = BATCH if self._before[value][axis] == self._count else None
        return ir.Shape(dims)

    def visit(self, node: ir.Node) -> None:
        """Replace what a node has of the old number, and infer what it gives.

        Raises:
            TracingError: It does not take another number.
        """
        axes = {position: axis for position, value in enumerate(node.inputs) if (axis := self.axis(value)) is not None}
        if not axes:
            return
        if node.op_type in _BROADCAST:
            self._broadcast(node, axes)
        elif node.op_type in _ALIGNED:
            position, axis = next(iter(axes.items()))
            own = node.op_type != "Concat" or axis != node.attributes.get_int("axis", 0) % self._rank(node.inputs[0])
            for other in range(len(node.inputs)) if own else ():
                if other not in axes:
                    self._repeat(node, other, axis, node.inputs[position], axis)
        elif node.op_type in _RECURRENT and 0 in axes:
            at = 0 if node.attributes.get_int("layout", 0) else 1
            for position, axis in ((4, 0), (5, at), (6, at)):
                if position < len(node.inputs) and node.inputs[position] is not None and position not in axes:
                    self._repeat(node, position, axis, node.inputs[0], axes[0])
        elif node.op_type in _WRITTEN_DOWN and 0 in axes:
            _WRITTEN_DOWN[node.op_type](self, node, axes[0])
        outside = next((self._outside[value] for value in node.inputs if value in self._outside), 1)
        if outside != 1 and node.op_type != "Reshape":
            self._outside.update(dict.fromkeys(node.outputs, outside))
        self._infer(node)

    def _infer(self, node: ir.Node) -> None:
        guesses = [self._guess(node, value) for value in node.outputs]
        if node.domain:
            for value, guess in zip(node.outputs, guesses, strict=True):
                value.shape = guess
            return
        for value, guess, (_, shape) in zip(node.outputs, guesses, infer(node, OPSET), strict=True):
            value.shape = shape
            if shape is None or guess is None or shape.rank() != guess.rank():
                value.shape = guess if shape is None else shape
            else:
                value.shape = ir.Shape(
                    [dim if isinstance(dim, int) else other for dim, other in zip(shape, guess, strict=True)]
                )

    def _guess(self, node: ir.Node, value: ir.Value) -> ir.Shape | None:
        """What a tensor's shape may be where nothing else says it: the examples first, as before."""
        before = self._before.get(value)
        if before is None or not is_static(before):
            return None
        dims: list[Any] = list(before)
        if node.op_type == "Reshape":
            axis = self.axis(node.inputs[0])
            target = None if axis is None else self.target_axis(node, axis)
            if target is not None:
                dims[target] *= _OTHER
        elif dims and dims[0] == self._count:
            dims[0] *= _OTHER
        return ir.Shape(dims)

    def target_axis(self, node: ir.Node, axis: int) -> int | None:
        """Where the examples go in a Reshape: elements are in the same order before and after it."""
        data = node.inputs[0]
        before, after = self._before.get(data) if data is not None else None, self._before.get(node.outputs[0])
        if data is None or before is None or after is None or not (is_static(before) and is_static(after)):
            return None
        outside = _product(before[:axis]) * self._outside.get(data, 1)
        products = [_product(after[:at]) for at in range(len(after) + 1)]
        fits = [
            at
            for at in range(len(after))
            if outside % products[at] == 0 and products[at + 1] % (outside * self._count) == 0
        ]
        # Where several axes may be it, for there is one example: one that stays, one of the right size, one that is
        # merged with the examples in front (heads) or behind (positions). Features are the last axis, and no examples.
        exact = [at for at in fits if products[at] == outside]
        ranked = [
            *(at for at in exact if at == axis and after[at] == before[axis]),
            *(at for at in exact if after[at] == self._count),
            *(at for at in exact if at < len(after) - 1),
            *(at for at in reversed(fits) if at < len(after) - 1),
            *fits,
        ]
        if not ranked:
            return None
        self._outside[node.outputs[0]] = outside // products[ranked[0]]
        return ranked[0]

    def reshape(self, node: ir.Node, axis: int) -> None:
        """The number of examples in a constant target is copied or inferred instead."""
        target = self._constant(node, 1)
        at = self.target_axis(node, axis)
        after = self._before.get(node.outputs[0])
        if target is None or at is None or after is None or 0 in after:
            return
        sizes = list(after)
        copied_dim = at == axis and after[at] == self._before[_there(node.inputs[0])][axis] != 0
        sizes[at] = 0 if copied_dim else -1
        self._replace(node, 1, self._tracer.constant(np.asarray(sizes, np.int64)))
        node.attributes.pop("allowzero", None)

    def expand(self, node: ir.Node, axis: int) -> None:
        """An Expand of the examples leaves their number alone."""
        target, rank = self._constant(node, 1), self._rank(node.inputs[0])
        if target is None:
            return
        at = axis + len(target) - rank
        if at >= 0 and target[at] == self._before[_there(node.inputs[0])][axis]:
            self._replace(node, 1, self._tracer.constant(_with(target, at, 1)))

    def slice(self, node: ir.Node, axis: int) -> None:
        """A Slice that takes all examples takes all of any number."""
        starts, ends = self._constant(node, 1), self._constant(node, 2)
        if starts is None or ends is None:
            return
        axes = self._constant(node, 3)
        steps = self._constant(node, 4)
        listed = list(range(len(starts))) if axes is None else [int(at) % self._rank(node.inputs[0]) for at in axes]
        for place, at in enumerate(listed):
            whole = starts[place] == 0 and ends[place] >= self._before[_there(node.inputs[0])][axis]
            if at == axis and whole and (steps is None or steps[place] == 1):
                self._replace(node, 2, self._tracer.constant(_with(ends.astype(np.int64), place, _TO_THE_END)))
                for position in (1, 3, 4):
                    self._as_int64(node, position)

    def squeeze(self, node: ir.Node, _axis: int) -> None:
        """A Squeeze of all axes of length one is one of those that are so now."""
        if len(node.inputs) < 2 or node.inputs[1] is None:
            before = self._before[_there(node.inputs[0])]
            axes = self._tracer.constant([axis for axis, dim in enumerate(before) if dim == 1])
            node.resize_inputs(2)
            self._replace(node, 1, axes)

    def resize(self, node: ir.Node, axis: int) -> None:
        """The sizes behind a Resize have the number of examples from its input."""
        sizes = self._constant(node, 3)
        if sizes is None or "axes" in node.attributes or sizes[axis] != self._before[_there(node.inputs[0])][axis]:
            return
        self._replace(node, 3, self._sizes(list(sizes), axis, node.inputs[0], axis))

    def _broadcast(self, node: ir.Node, axes: Mapping[int, int]) -> None:
        """A constant that is written once for each example counts once for all."""
        if self._count == 1:
            return
        position, axis = next(iter(axes.items()))
        from_end = axis - self._rank(node.inputs[position])
        for other, value in enumerate(node.inputs):
            if value is None or other in axes or value not in self._before:
                continue
            at = from_end + len(self._before[value])
            if at >= 0 and self._before[value][at] == self._count:
                self._replace(node, other, self._first(value, at))

    def _repeat(self, node: ir.Node, position: int, axis: int, like: ir.Value | None, its_axis: int) -> None:
        """One copy of an operand for each example, where it had one for each of the old number."""
        value = node.inputs[position]
        before = self._before.get(value) if value is not None else None
        if value is None or like is None or before is None or axis >= len(before) or before[axis] != self._count:
            return
        one = self._tracer.wrap(value) if self._count == 1 else self._first(value, axis)
        sizes = [1] * len(before)
        expanded = self._tracer.emit("Expand", one, self._sizes(sizes, axis, like, its_axis))
        self._replace(node, position, expanded)
        dims = list(before)
        dims[axis] = self._count * _OTHER
        expanded.value.shape = ir.Shape(dims)
        self._before[expanded.value] = before

    def _first(self, value: ir.Value, axis: int) -> Array:
        one: Array = self._tracer.emit("Slice", self._tracer.wrap(value), [0], [1], [axis])
        return one

    def _sizes(self, sizes: list[int], axis: int, like: ir.Value | None, its_axis: int) -> Array:
        """Sizes of which one is that of an axis of a tensor."""
        length = self._tracer.emit("Shape", self._tracer.wrap(_there(like)), start=its_axis, end=its_axis + 1)
        parts: list[ArrayLike] = [np.asarray(sizes[:axis], np.int64), length, np.asarray(sizes[axis + 1 :], np.int64)]
        given: list[ArrayLike] = [part for part in parts if not isinstance(part, np.ndarray) or part.size]
        joined: Array = self._tracer.emit("Concat", *given, axis=0) if len(given) > 1 else length
        return joined

    def _as_int64(self, node: ir.Node, position: int) -> None:
        """Starts, ends, axes and steps of a Slice have one type."""
        constant = self._constant(node, position)
        if constant is not None and constant.dtype != np.int64:
            self._replace(node, position, self._tracer.constant(constant.astype(np.int64)))

    def _constant(self, node: ir.Node, position: int) -> np.ndarray[Any, Any] | None:
        value = node.inputs[position] if position < len(node.inputs) else None
        tensor = None if value is None else ir.convenience.get_const_tensor(value)
        return None if tensor is None else tensor.numpy()

    def _rank(self, value: ir.Value | None) -> int:
        return len(self._before[_there(value)])

    def _replace(self, node: ir.Node, position: int, array: Array) -> None:
        node.replace_input_with(position, array.value)


_WRITTEN_DOWN = {
    "Expand": _Walk.expand,
    "Reshape": _Walk.reshape,
    "Resize": _Walk.resize,
    "Slice": _Walk.slice,
    "Squeeze": _Walk.squeeze,
}


def _there(value: ir.Value | None) -> ir.Value:
    if value is None:
        raise TracingError("an input is missing")
    return value


def _product(dims: Sequence[Any]) -> int:
    return int(np.prod(np.asarray(dims, np.int64)))


def _with(array: np.ndarray[Any, Any], position: int, number: int) -> np.ndarray[Any, Any]:
    changed = array.astype(np.int64)
    changed[position] = number
    return changed
