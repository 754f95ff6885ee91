from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from edgeopt import tracing as xp
from edgeopt.autodiff import backward
from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import control_flow
from edgeopt.errors import UnsupportedOperatorError
from edgeopt.testing import check_gradients
from edgeopt.tracing import Array, Tracer, new_graph, op

Arrays = Sequence[Array]


def scanned(
    step: Callable[[Arrays, Arrays], tuple[Arrays, Arrays]],
    initial: Arrays,
    sequences: Arrays,
    axes: Sequence[int] | None = None,
    **where: Any,
) -> tuple[Array, ...]:
    """A Scan node with all its attributes."""
    tracer = sequences[0].tracer
    body = tracer.subgraph("body")
    states = [body.argument("state", x.dtype, x.shape) for x in initial]
    slices = []
    for x, axis in zip(sequences, axes or [0] * len(sequences), strict=True):
        shape = list(x.shape)
        del shape[axis]
        slices.append(body.argument("slice", x.dtype, tuple(shape)))
    following, stacked = step(states, slices)
    for x in (*following, *stacked):
        body.result(x)
    return tracer.emit(
        "Scan",
        *initial,
        *sequences,
        outputs=len(following) + len(stacked),
        body=body.graph,
        num_scan_inputs=len(sequences),
        scan_input_axes=axes,
        **where,
    )


def cell(w: Array) -> Callable[[Arrays, Arrays], tuple[Arrays, Arrays]]:
    def step(states: Arrays, slices: Arrays) -> tuple[Arrays, Arrays]:
        new = xp.tanh(slices[0] + xp.matmul(states[0], w))
        return [new], [new * slices[0]]

    return step


def cell_loop(x: torch.Tensor, w: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    stacked = []
    for slice_ in x:
        h = torch.tanh(slice_ + h @ w)
        stacked.append(h * slice_)
    return h, stacked


def in_directions(x: Array, w: Array, h: Array) -> Array:
    """Two sequences along different axes in different directions, the output stacked last and backwards."""

    def step(states: Arrays, slices: Arrays) -> tuple[Arrays, Arrays]:
        new = xp.tanh(xp.matmul(states[0] + slices[0], w)) * slices[1]
        return [new], [new + states[0]]

    other = op.Transpose(x, perm=[1, 2, 0])
    where = {"scan_input_directions": [1, 0], "scan_output_axes": [-1], "scan_output_directions": [1]}
    last, stacked = scanned(step, [h], [x, other], [0, 2], **where)
    return stacked * op.Unsqueeze(last, [2])


def in_directions_loop(x: torch.Tensor, w: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    stacked = []
    for forwards, backwards in zip(x, reversed(x), strict=True):
        new = torch.tanh((h + backwards) @ w) * forwards
        stacked.append(new + h)
        h = new
    return torch.stack(stacked[::-1], -1) * h.unsqueeze(2)


def counting(x: Array) -> Array:
    """A state that is no float, one that does not depend on the input, and one that is only passed through."""
    tracer = x.tracer
    number, fixed = tracer.constant(np.int64(1)), tracer.constant(np.ones(3), x.dtype)

    def step(states: Arrays, slices: Arrays) -> tuple[Arrays, Arrays]:
        count, weight, kept, total = states
        added = total + slices[0] * slices[0] * xp.astype(count, x.dtype) * weight * kept
        return [count + np.int64(1), weight * 1.5, op.Identity(kept), added], []

    first = op.Squeeze(op.Slice(x, [0], [1], [0]), [0])
    return scanned(step, [number, fixed, first, xp.zeros_like(first)], [x])[3]


def counting_loop(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([row * row * (i + 1) * 1.5**i * x[0] for i, row in enumerate(x)]).sum(0)


def chosen(condition: Callable[[Array], Array]) -> Callable[[Array, Array], Array]:
    """Branches that use other tensors; the second returns one as it is."""

    def function(x: Array, w: Array) -> Array:
        branches = {}
        for name in ("then_branch", "else_branch"):
            branch = x.tracer.subgraph(name)
            inner_x, inner_w = branch.wrap(x.value), branch.wrap(w.value)
            if name == "then_branch":
                product = xp.tanh(inner_x) * inner_w
                branch.result(product)
                branch.result(product)
            else:
                branch.result(xp.exp(inner_x))
                branch.result(inner_x)
            branches[name] = branch.graph
        first, second = x.tracer.emit("If", condition(x), outputs=2, **branches)
        return first * second

    return function


def squeezed(x: Array) -> Array:
    """What exporters make of a dimension that is taken out if it is one: only one branch has the rank of the result."""
    branches = {}
    for name in ("then_branch", "else_branch"):
        branch = x.tracer.subgraph(name)
        inner = branch.wrap(x.value)
        branch.result(xp.squeeze(inner * inner, axis=2) if name == "then_branch" else xp.exp(inner))
        branches[name] = branch.graph
    (y,) = x.tracer.emit("If", op.Equal(op.Shape(x, start=2), np.asarray([1], np.int64)), outputs=1, **branches)
    return xp.sin(y.with_shape(x.shape[:2]))


def looped(
    step: Callable[[Array, Array, Array], tuple[Array | None, Array, Array]],
    x: Array,
    trips: Any,
) -> tuple[Array, ...]:
    """A Loop node; the step gets number, state and the outer x, and returns condition, state and what is stacked."""
    tracer = x.tracer
    body = tracer.subgraph("body")
    number, condition = body.argument("number", np.int64, ()), body.argument("condition", np.bool_, ())
    state = body.argument("state", x.dtype, x.shape)
    again, new, stacked = step(number, state, body.wrap(x.value))
    body.result(op.Identity(condition) if again is None else again)
    body.result(new)
    body.result(stacked)
    return tracer.emit("Loop", trips, np.bool_(True), xp.zeros_like(x), outputs=2, body=body.graph)


def powers(trips: int | None, limit: float = np.inf) -> Callable[[Array], Array]:
    """Runs for a number of steps, or until the sum of the state reaches a limit."""

    def step(number: Array, state: Array, x: Array) -> tuple[Array | None, Array, Array]:
        new = xp.sin(state) * x + xp.astype(number, x.dtype) + x * x
        again = xp.sum(new) < limit if np.isfinite(limit) else None
        return again, new, state * x

    def function(x: Array) -> Array:
        last, stacked = looped(step, x, None if trips is None else np.int64(trips))
        return last + op.ReduceSum(stacked, [0], keepdims=0)

    return function


def powers_loop(trips: int | None, limit: float = np.inf) -> Callable[[torch.Tensor], torch.Tensor]:
    def function(x: torch.Tensor) -> torch.Tensor:
        state, stacked = torch.zeros_like(x), torch.zeros_like(x)
        for number in range(trips or 1000):
            stacked = stacked + state * x
            state = torch.sin(state) * x + number + x * x
            if not float(state.detach().sum()) < limit:
                break
        return state + stacked

    return function


def nested(x: Array, w: Array) -> Array:
    """A Scan whose steps choose between a Loop and something else."""
    tracer = x.tracer

    def step(states: Arrays, slices: Arrays) -> tuple[Arrays, Arrays]:
        inner = slices[0].tracer
        then, otherwise = inner.subgraph("then"), inner.subgraph("otherwise")
        state, row = then.wrap(states[0].value), then.wrap(slices[0].value)
        last, _ = looped(lambda i, s, x: (None, xp.tanh(s + x * w), s), row, np.int64(2))
        then.result(last + state)
        otherwise.result(otherwise.wrap(slices[0].value) * otherwise.wrap(w.value))
        branches = {"then_branch": then.graph, "else_branch": otherwise.graph}
        (new,) = inner.emit("If", xp.sum(slices[0]) > 0.0, outputs=1, **branches)
        return [new.with_shape(slices[0].shape)], [new * new]

    return scanned(step, [tracer.constant(np.zeros(3), x.dtype)], [x])[1]


def nested_loop(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    state, stacked = torch.zeros(3, dtype=x.dtype), []
    for row in x:
        if row.sum() > 0:
            inner = torch.tanh(row * w)
            state = torch.tanh(inner + row * w) + state
        else:
            state = row * w
        stacked.append(state * state)
    return torch.stack(stacked)


SEQUENCE = [(4, 2, 3), (3, 3), (2, 3)]

ROWS: list[tuple[Any, ...]] = [
    ("Scan", lambda *a: cell_loop(*a)[0], SEQUENCE, lambda x, w, h: scanned(cell(w), [h], [x])[0]),
    ("Scan", lambda *a: torch.stack(cell_loop(*a)[1]), SEQUENCE, lambda x, w, h: scanned(cell(w), [h], [x])[1]),
    ("Scan", in_directions_loop, [(2, 2, 3), (3, 3), (2, 3)], in_directions),
    ("Scan", counting_loop, [(3, 3)], counting),
    ("Scan", nested_loop, [(5, 3), (3,)], nested),
    ("If", lambda x, w: (torch.tanh(x) * w) ** 2, [(3,), (3,)], chosen(lambda x: xp.sum(x * x) > 0.0)),
    ("If", lambda x, w: torch.exp(x) * x, [(3,), (3,)], chosen(lambda x: xp.sum(x * x) < 0.0)),
    ("If", lambda x: torch.sin((x * x).squeeze(2)), [(2, 3, 1)], squeezed),
    ("Loop", powers_loop(4), [(3,)], powers(4)),
    ("Loop", powers_loop(9, 8.0), [(3,)], powers(9, 8.0)),
    ("Loop", powers_loop(None, 8.0), [(3,)], powers(None, 8.0)),
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == control_flow.__name__}
    assert rules == {row[0] for row in ROWS}


def test_the_limit_of_the_rows_ends_their_loops_early() -> None:
    x = torch.tensor(np.random.default_rng(7).uniform(-2.0, 2.0, 3))
    assert not torch.equal(powers_loop(9, 8.0)(x), powers_loop(9)(x))
    assert torch.equal(powers_loop(None, 8.0)(x), powers_loop(9, 8.0)(x))


@pytest.mark.parametrize("order", [1, 2])
def test_a_loop_of_no_steps_passes_the_cotangent_on(order: int) -> None:
    def function(x: Array, trips: Array) -> Array:
        return looped(lambda i, s, x: (None, s * x + x, s), x, trips)[0] + x * x

    for trips in (0, 3):
        check_gradients(function, [np.asarray([0.3, 1.2]), np.asarray(trips)], order=order)


def test_scan_with_named_dimensions(check_row_with_names: Callable[..., None]) -> None:
    check_row_with_names(ROWS[1], [("time", "batch", 3), (3, 3), ("batch", 3)])


def test_what_is_frozen_costs_nothing() -> None:
    """Neither the weight's gradient is added up, nor are the states kept that only it would need."""
    tracer = Tracer(new_graph("frozen"))
    x, h = tracer.input("x", np.float32, (4, 2, 3)), tracer.input("h", np.float32, (2, 3))
    w = tracer.input("w", np.float32, (3, 3))

    def step(states: Arrays, slices: Arrays) -> tuple[Arrays, Arrays]:
        return [xp.matmul(states[0], w) + slices[0]], []

    (last,) = scanned(step, [h], [x])
    (gradient,) = backward(tracer, {last.value: last}, [h.value])
    assert gradient is not None
    forward, back = (node for node in tracer.graph if node.op_type == "Scan")
    assert len(forward.outputs) == 1
    assert len(back.outputs) == 1


def test_random_numbers_in_a_body_are_refused() -> None:
    tracer = Tracer(new_graph("random"))
    x = tracer.input("x", np.float32, (4, 3))

    def step(states: Arrays, slices: Arrays) -> tuple[Arrays, Arrays]:
        return [op.Dropout(states[0] * slices[0], 0.5, np.bool_(True))], []

    (last,) = scanned(step, [tracer.constant(np.ones(3, np.float32))], [x])
    with pytest.raises(UnsupportedOperatorError, match=r"Scan .*draws random numbers"):
        backward(tracer, {last.value: last}, [x.value])


def test_a_carried_tensor_that_grows_is_refused() -> None:
    tracer = Tracer(new_graph("growing"))
    x = tracer.input("x", np.float32, (1, 3))
    body = tracer.subgraph("body")
    body.argument("number", np.int64, ())
    condition, state = body.argument("condition", np.bool_, ()), body.argument("state", np.float32, (None, 3))
    body.result(op.Identity(condition))
    body.result(op.Concat(state, body.wrap(x.value), axis=0))
    (rows,) = tracer.emit("Loop", np.int64(3), np.bool_(True), x, outputs=1, body=body.graph)
    with pytest.raises(UnsupportedOperatorError, match=r"Loop .*shape \[1, 3\] grows to \[2, 3\]"):
        backward(tracer, {rows.value: rows.with_shape((4, 3))}, [x.value])


def test_operators_without_a_rule_are_named_inside_bodies_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(RULES, "Erf")
    tracer = Tracer(new_graph("unknown"))
    x = tracer.input("x", np.float32, (4, 3))
    outside = op.Erf(x)

    def step(states: Arrays, slices: Arrays) -> tuple[Arrays, Arrays]:
        return [states[0] + op.Erf(slices[0])], []

    (last,) = scanned(step, [tracer.constant(np.ones(3, np.float32))], [outside])
    with pytest.raises(UnsupportedOperatorError) as caught:
        backward(tracer, {last.value: last}, [x.value])
    (problem,) = caught.value.problems
    assert problem.startswith("Erf (nodes 'erf', 'erf_1')")
