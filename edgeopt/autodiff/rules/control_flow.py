"""If, Loop and Scan: the gradient of a body is a body again.

The gradient of an If is an If with the same condition, in whose branches the forward branch is computed anew. Loop and
Scan become a Scan that walks the steps backwards: it carries the cotangents of what was carried forward, adds up those
of the tensors captured from outside, reads the values that each step began with, and computes the step anew from them.
To be read they are stacked, as further outputs of the forward node. How often a Loop runs may depend on data: the
number of stacked values tells how often it did.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.autodiff.arrays import reshape_like
from edgeopt.autodiff.engine import backward
from edgeopt.autodiff.registry import rule
from edgeopt.autodiff.reversal import Argument, Stack, StackedOutput, entering, reverse
from edgeopt.tracing import Array
from edgeopt.tracing.inlining import inline
from edgeopt.tracing.randomness import is_random
from edgeopt.tracing.site import Site
from edgeopt.tracing.subgraphs import all_nodes, bodies, operands, remove_unused

Cotangents = Sequence[Array | None]


def _problem(n: Site) -> str | None:
    """What no body may contain."""
    for body in bodies(n.node):
        random = [repr(node.name) for node in all_nodes(body) if is_random(node)]
        if random:
            return f"a body draws random numbers ({', '.join(random)}), and computed anew it would draw others"
    types = [value.type for value in (*operands(n.node), *n.node.outputs) if value is not None]
    if not all(kind is None or isinstance(kind, ir.TensorType) for kind in types):
        return "sequences or optional values enter or leave it"
    return None


@rule("If", limits=_problem)
def if_(n: Site, *cotangents: Array | None) -> Cotangents:
    """An If whose branches compute the cotangents of the captured tensors."""
    wanted = [position for position, needed in enumerate(n.needs) if needed]
    branches = {}
    for name in ("then_branch", "else_branch"):
        inner = n.tracer.subgraph("gradient")
        seeds: dict[ir.Value, Array] = {}
        for result, cotangent in zip(inline(inner, n.attr(name), []), cotangents, strict=True):
            if cotangent is not None:
                seed = inner.wrap(cotangent.value)
                if seed.ndim != result.ndim:
                    # A branch of another rank is never taken, but its gradient has to be said all the same.
                    seed = reshape_like(seed, result)
                seeds[result.value] = seeds[result.value] + seed if result.value in seeds else seed
        found = backward(inner, seeds, [n.input(position).value for position in wanted])
        for position, gradient in zip(wanted, found, strict=True):
            operand = inner.wrap(n.input(position).value)
            inner.result(xp.zeros_like(operand) if gradient is None else gradient.with_shape(operand.shape))
        remove_unused(inner.graph)
        branches[name] = inner.graph
    gradients = n.tracer.emit("If", n.x, outputs=len(wanted), **branches)
    leaving: list[Array | None] = [None] * len(n.needs)
    for position, gradient in zip(wanted, gradients, strict=True):
        leaving[position] = gradient.with_shape(n.input(position).shape)
    return leaving


@rule("Scan", limits=_problem)
def scan(n: Site, *cotangents: Array | None) -> Cotangents:
    """States and scan inputs, scan outputs in any direction along any axis."""
    body: ir.Graph = n.attr("body")
    sequences = int(n.attr("num_scan_inputs"))
    states = len(n.node.inputs) - sequences
    outputs = len(n.node.outputs) - states
    arguments = [_carried(n, body, i, operand=i, carried=i) for i in range(states)]
    places = zip(_ints(n, "scan_input_axes", sequences), _ints(n, "scan_input_directions", sequences), strict=True)
    for position, (axis, direction) in enumerate(places, start=states):
        array = n.input(position)
        stack = Stack(array, axis % array.ndim, direction)
        arguments.append(Argument(array.dtype, stack.slice_shape, stack.itself, operand=position))
    places = zip(_ints(n, "scan_output_axes", outputs), _ints(n, "scan_output_directions", outputs), strict=True)
    stacked = [
        StackedOutput(position, Stack(g, axis % g.ndim, direction))
        for (position, g), (axis, direction) in zip(enumerate(cotangents[states:], start=states), places, strict=True)
        if g is not None
    ]
    return reverse(n, body, arguments, dict(enumerate(cotangents[:states])), stacked)


@rule("Loop", limits=_problem)
def loop(n: Site, *cotangents: Array | None) -> Cotangents:
    """In every step that ran the condition was true, so the step's number and the carried values say all."""
    body: ir.Graph = n.attr("body")
    carried = len(n.node.inputs) - 2
    arguments = [
        Argument(np.int64, (), partial(entering, n, body, 0, ())),
        Argument(np.bool_, (), None),
        *(_carried(n, body, 2 + i, operand=2 + i, carried=1 + i) for i in range(carried)),
    ]
    final = {1 + i: g for i, g in enumerate(cotangents[:carried])}
    stacked = [
        StackedOutput(position, Stack(g))
        for position, g in enumerate(cotangents[carried:], start=1 + carried)
        if g is not None
    ]
    trips = n.constant(0)
    always = not n.has(1) or bool(n.constant(1))
    return reverse(n, body, arguments, final, stacked, may_be_empty=trips is None or trips.item() < 1 or not always)


def _carried(n: Site, body: ir.Graph, position: int, *, operand: int, carried: int) -> Argument:
    first = n.input(operand)
    stack = partial(entering, n, body, position, first.shape)
    return Argument(first.dtype, first.shape, stack, operand, carried)


def _ints(n: Site, name: str, count: int) -> list[int]:
    return [int(number) for number in n.attr(name, [0] * count)]
