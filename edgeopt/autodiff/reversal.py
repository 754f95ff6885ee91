"""Walking the steps of a loop backwards: a Scan that computes each step anew and differentiates it there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.autodiff.engine import backward, dependent_values
from edgeopt.errors import UnsupportedOperatorError
from edgeopt.tracing import Array, Tracer, op
from edgeopt.tracing.inlining import inline
from edgeopt.tracing.shapes import Shape
from edgeopt.tracing.site import Site
from edgeopt.tracing.subgraphs import remove_unused

__all__ = ["Argument", "Stack", "StackedOutput", "entering", "reverse"]

_ENTERING = "edgeopt.entering"


class Stack(NamedTuple):
    """The values that a body's input or output takes, one for each step: along which axis, and 1 for last first."""

    array: Array
    axis: int = 0
    direction: int = 0

    @property
    def slice_shape(self) -> Shape:
        """The shape within one step."""
        return (*self.array.shape[: self.axis], *self.array.shape[self.axis + 1 :])

    def itself(self) -> Stack:
        """For stacks that are there already, where others are made when asked for."""
        return self


class Argument(NamedTuple):
    """An input of a body.

    Attributes:
        dtype, shape: Its type within one step.
        stack: Its values in all steps, written by the forward node when asked for; None for a constant True.
        operand: The node's input that it comes from.
        carried: The body's output that it is in the next step.
    """

    dtype: Any
    shape: Shape
    stack: Callable[[], Stack] | None
    operand: int | None = None
    carried: int | None = None


class StackedOutput(NamedTuple):
    """A stacked output of a node whose cotangent has arrived, and its place among the body's outputs."""

    position: int
    cotangent: Stack


def entering(n: Site, body: ir.Graph, position: int, shape: Shape) -> Stack:
    """What a body's input is at the beginning of each step, as a further output of the forward node."""
    value = body.inputs[position]
    for offset, output in enumerate(reversed(body.outputs)):
        producer = output.producer()
        if producer is None or _ENTERING not in producer.metadata_props:
            break  # the node's own outputs come before those that were asked for here
        if producer.inputs[0] is value:
            return Stack(n.tracer.wrap(n.node.outputs[len(n.node.outputs) - 1 - offset]))
    inner = n.tracer.within(body)
    inner.result(inner.wrap(value), "entering")
    copy = body.outputs[-1].producer()
    if copy is not None:
        copy.metadata_props[_ENTERING] = "1"
    for name in ("scan_output_axes", "scan_output_directions"):
        if name in n.node.attributes:
            n.node.attributes[name] = ir.AttrInt64s(name, [*n.node.attributes[name].as_ints(), 0])
    return Stack(n.output(len(n.node.outputs), inner.wrap(value).dtype, (None, *shape)))


def reverse(
    n: Site,
    body: ir.Graph,
    arguments: Sequence[Argument],
    final: Mapping[int, Array | None],
    stacked: Sequence[StackedOutput],
    *,
    may_be_empty: bool = False,
) -> list[Array | None]:
    """The cotangents of a loop's inputs and of the tensors that its body captures.

    Args:
        n: The node.
        body: What it does in each step.
        arguments: The body's inputs.
        final: Cotangents of the carried values after the last step, by the body's outputs.
        stacked: The stacked outputs with a cotangent.
        may_be_empty: Whether there may be no step at all, which a Scan does not accept.
    """
    inner = n.tracer.subgraph("reversed")
    steps = [inner.argument("step", a.dtype, a.shape) if a.stack else inner.constant(True) for a in arguments]
    results = inline(inner, body, steps)
    captures = [i for i in range(len(n.node.inputs), len(n.needs)) if n.needs[i]]
    entered = [i for i, a in enumerate(arguments) if a.operand is not None and n.needs[a.operand]]
    outer = [n.input(i).value for i in captures]
    active = _active(inner, [*(steps[i].value for i in entered), *outer], arguments, steps, results)
    carried = {i: a.carried for i, a in enumerate(arguments) if a.carried is not None and steps[i].value in active}
    _refuse_growing(n, [(arguments[i].shape, results[after].value) for i, after in carried.items()])

    arriving = {i: inner.argument("cotangent", arguments[i].dtype, arguments[i].shape) for i in carried}
    reading = [inner.argument("cotangent", o.cotangent.array.dtype, o.cotangent.slice_shape) for o in stacked]
    seeds: dict[ir.Value, Array] = {}
    seeded = [*carried.values(), *(output.position for output in stacked)]
    for position, seed in zip(seeded, [*arriving.values(), *reading], strict=True):
        value = results[position].value
        seeds[value] = seeds[value] + seed if value in seeds else seed
    sequences = [i for i in entered if arguments[i].carried is None]
    leaving = iter(backward(inner, seeds, [*(steps[i].value for i in (*carried, *sequences)), *outer]))

    states = []
    for i, after in carried.items():
        gradient, operand, last = next(leaving), arguments[i].operand or 0, final.get(after)
        before = xp.zeros_like(arriving[i]) if gradient is None else gradient.with_shape(arguments[i].shape)
        states.append(_Carried(arriving[i], xp.zeros_like(n.input(operand)) if last is None else last, before, operand))
    written = [(i, gradient) for i in sequences if (gradient := next(leaving)) is not None]
    for i in captures:
        gradient = next(leaving)
        if gradient is not None:
            total = inner.argument("sum", gradient.dtype, n.input(i).shape)
            added = (total + gradient).with_shape(total.shape)
            states.append(_Carried(total, xp.zeros_like(n.input(i)), added, i))
    # First what is stacked in any case: one of these tells the number of steps where no value is needed.
    ordered = sorted(zip(steps, arguments, strict=True), key=lambda pair: pair[1].carried is not None)
    read = [(step, a.stack) for step, a in ordered if a.stack]
    read += [(argument, output.cotangent.itself) for argument, output in zip(reading, stacked, strict=True)]
    return _emit(n, inner, states, read, [(arguments[i], gradient) for i, gradient in written], may_be_empty)


class _Carried(NamedTuple):
    """What is carried from the last step to the first, and the node's input whose cotangent it is in the end."""

    argument: Array
    initial: Array
    following: Array
    operand: int


def _emit(
    n: Site,
    inner: Tracer,
    carried: Sequence[_Carried],
    read: Sequence[tuple[Array, Callable[[], Stack]]],
    written: Sequence[tuple[Argument, Array]],
    may_be_empty: bool,
) -> list[Array | None]:
    for array in (*(state.following for state in carried), *(gradient for _, gradient in written)):
        inner.result(array)
    remove_unused(inner.graph)
    used = [(argument, stack) for argument, stack in read if argument.value.uses()] or read[:1]
    inner.graph.inputs[:] = [*(state.argument.value for state in carried), *(argument.value for argument, _ in used)]
    stacks = [stack() for _, stack in used]
    places = [argument.stack() for argument, _ in written if argument.stack]
    initial = [state.initial for state in carried]

    def scan(tracer: Tracer) -> Sequence[Array]:
        return tracer.emit(
            "Scan",
            *initial,
            *(stack.array for stack in stacks),
            outputs=len(carried) + len(written),
            body=inner.graph,
            num_scan_inputs=len(stacks),
            **_where("scan_input", stacks),
            **_where("scan_output", places),
        )

    results = _unless_empty(n.tracer, stacks[0], scan, initial) if may_be_empty else scan(n.tracer)
    leaving: list[Array | None] = [None] * len(n.needs)
    for operand, gradient in zip(
        [*(state.operand for state in carried), *(argument.operand or 0 for argument, _ in written)],
        results,
        strict=True,
    ):
        leaving[operand] = gradient.with_shape(n.input(operand).shape)
    return leaving


def _unless_empty(
    tracer: Tracer, stack: Stack, compute: Callable[[Tracer], Sequence[Array]], otherwise: Sequence[Array]
) -> Sequence[Array]:
    count = op.Squeeze(op.Shape(stack.array, start=stack.axis, end=stack.axis + 1), [0])
    some, none = tracer.subgraph("some_steps"), tracer.subgraph("no_step")
    for array in compute(some):
        some.result(array)
    for array in otherwise:
        none.result(array)
    branches = {"then_branch": some.graph, "else_branch": none.graph}
    return tracer.emit("If", count > np.int64(0), outputs=len(otherwise), **branches)


def _active(
    inner: Tracer,
    wrt: Iterable[ir.Value],
    arguments: Sequence[Argument],
    steps: Sequence[Array],
    results: Sequence[Array],
) -> set[ir.Value]:
    """What depends on `wrt` in some step: a carried value does if it did at the end of the step before."""
    active = set(wrt)
    while True:
        dependent = dependent_values(inner.graph, active)
        more = {
            step.value
            for a, step in zip(arguments, steps, strict=True)
            if a.carried is not None and results[a.carried].value in dependent
        }
        if more <= active:
            return dependent
        active |= more


def _refuse_growing(n: Site, carried: Iterable[tuple[Shape, ir.Value]]) -> None:
    for shape, result in carried:
        if result.shape is None:
            continue
        after = tuple(result.shape)
        pairs = zip(shape, after, strict=False)
        if len(shape) != len(after) or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
            raise UnsupportedOperatorError(
                [f"{n}: a carried tensor of shape {list(shape)} grows to {list(after)}, so its values do not stack"]
            )


def _where(prefix: str, stacks: Sequence[Stack]) -> dict[str, list[int] | None]:
    """Axes and directions, the latter turned round; left out where they are the operator's defaults."""
    axes, directions = [stack.axis for stack in stacks], [1 - stack.direction for stack in stacks]
    return {
        f"{prefix}_axes": axes if any(axes) else None,
        f"{prefix}_directions": directions if any(directions) else None,
    }
