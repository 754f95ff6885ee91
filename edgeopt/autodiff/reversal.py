"""Walking the steps of a loop backwards: a Scan that computes each step anew and differentiates it there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.autodiff.engine import backward, dependent_values
from edgeopt.errors import UnsupportedOperatorError
from edgeopt.tracing import Array, Tracer
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
) -> list[Array | None]:
    """The cotangents of a loop's inputs and of the tensors that its body captures.

    Args:
        n: The node.
        body: What it does in each step.
        arguments: The body's inputs.
        final: Cotangents of the carried values after the last step, by the body's outputs.
        stacked: The stacked outputs with a cotangent.
    """
    inner = n.tracer.subgraph("reversed")
    steps = [inner.argument("step", a.dtype, a.shape) if a.stack else inner.constant(True) for a in arguments]
    results = inline(inner, body, steps)
    captures = [i for i in range(len(n.node.inputs), len(n.needs)) if n.needs[i]]
    wanted = [steps[i].value for i, a in enumerate(arguments) if a.operand is not None and n.needs[a.operand]]
    outer = [n.input(i).value for i in captures]
    active = _active(inner, [*wanted, *outer], arguments, steps, results)
    carried = [i for i, a in enumerate(arguments) if a.carried is not None and steps[i].value in active]
    _refuse_growing(n, [(arguments[i].shape, results[arguments[i].carried or 0].value) for i in carried])

    arriving = {i: inner.argument("cotangent", arguments[i].dtype, arguments[i].shape) for i in carried}
    reading = [
        (output, inner.argument("cotangent", output.cotangent.array.dtype, _slice(output))) for output in stacked
    ]
    seeds: dict[ir.Value, Array] = {}
    for position, seed in (
        *((arguments[i].carried or 0, seed) for i, seed in arriving.items()),
        *((output.position, seed) for output, seed in reading),
    ):
        value = results[position].value
        seeds[value] = seeds[value] + seed if value in seeds else seed
    inputs = [i for i, a in enumerate(arguments) if a.carried is None and steps[i].value in wanted]
    found = backward(inner, seeds, [*(steps[i].value for i in (*carried, *inputs)), *outer])
    to_carried = found[: len(carried)]
    to_inputs = found[len(carried) : len(carried) + len(inputs)]
    to_captured = [(i, g) for i, g in zip(captures, found[len(carried) + len(inputs) :], strict=True) if g is not None]

    initial = []
    for i, g in zip(carried, to_carried, strict=True):
        inner.result(xp.zeros_like(arriving[i]) if g is None else g.with_shape(arguments[i].shape), "cotangent")
        last = final.get(arguments[i].carried or 0)
        initial.append(xp.zeros_like(n.input(arguments[i].operand or 0)) if last is None else last)
    sums = []
    for i, g in to_captured:
        sums.append(inner.argument("sum", g.dtype, n.input(i).shape))
        inner.result((sums[-1] + g).with_shape(n.input(i).shape), "sum")
        initial.append(xp.zeros_like(n.input(i)))
    outputs = [(i, g) for i, g in zip(inputs, to_inputs, strict=True) if g is not None]
    for _, g in outputs:
        inner.result(g, "gradient")
    remove_unused(inner.graph)

    sources = [(step.value, a.stack) for a, step in zip(arguments, steps, strict=True) if a.stack]
    sources += [(array.value, lambda output=output: output.cotangent) for output, array in reading]
    used = [(value, stack) for value, stack in sources if value.uses()] or _any_stack(arguments, steps)
    inner.graph.inputs[:] = [*(arriving[i].value for i in carried), *(x.value for x in sums), *(v for v, _ in used)]
    stacks = [stack() for _, stack in used]
    directions = [arguments[i].stack() for i, _ in outputs]  # type: ignore[misc]  # a scan input is stacked
    results = n.tracer.emit(
        "Scan",
        *initial,
        *(stack.array for stack in stacks),
        outputs=len(initial) + len(outputs),
        body=inner.graph,
        num_scan_inputs=len(stacks),
        **_where("scan_input", [(stack.axis, 1 - stack.direction) for stack in stacks]),
        **_where("scan_output", [(stack.axis, 1 - stack.direction) for stack in directions]),
    )
    sites = [
        *(arguments[i].operand for i in carried),
        *(i for i, _ in to_captured),
        *(arguments[i].operand for i, _ in outputs),
    ]
    leaving: list[Array | None] = [None] * len(n.needs)
    for site, gradient in zip(sites, results, strict=True):
        if site is not None:
            leaving[site] = gradient.with_shape(n.input(site).shape)
    return leaving


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


def _slice(output: StackedOutput) -> Shape:
    shape, axis = output.cotangent.array.shape, output.cotangent.axis
    return (*shape[:axis], *shape[axis + 1 :])


def _any_stack(arguments: Sequence[Argument], steps: Sequence[Array]) -> list[tuple[ir.Value, Callable[[], Stack]]]:
    """Where no value is needed, a Scan still has to know the number of steps."""
    return next(
        [(step.value, a.stack)] for a, step in zip(arguments, steps, strict=True) if a.stack and a.carried is None
    )


def _where(prefix: str, places: Sequence[tuple[int, int]]) -> dict[str, list[int] | None]:
    """Axes and directions, left out where they are the operator's defaults."""
    axes, directions = [axis for axis, _ in places], [direction for _, direction in places]
    return {
        f"{prefix}_axes": axes if any(axes) else None,
        f"{prefix}_directions": directions if any(directions) else None,
    }
