"""LSTM, GRU and RNN: all gates at once, then one product for each step backwards.

The fused operator stays as it is. Since its output holds every state, the gates of all steps are computed anew by two
matrix products, and so is everything that does not depend on the cotangents. What remains is a Scan backwards in time,
whose steps are one product and a few elementwise operators, and behind it one product for each weight.

A sequence that has ended passes its state on: there `mask` is zero, and the cotangent goes by unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgeopt import tracing as xp
from edgeopt.autodiff.recurrent import whole
from edgeopt.autodiff.recurrent.backward import Arriving, Leaving, differentiate, in_steps, through_weights
from edgeopt.autodiff.recurrent.direction import Direction, recurrent_problem
from edgeopt.autodiff.registry import rule
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site

_Step = tuple[Sequence[Array], Sequence[Array]]


@rule("RNN", limits=recurrent_problem)
def rnn(n: Site, *cotangents: Array | None) -> Sequence[Array | None]:
    """h' = f(W x + R h + b)."""
    return differentiate(n, cotangents, _rnn)


@rule("GRU", limits=recurrent_problem)
def gru(n: Site, *cotangents: Array | None) -> Sequence[Array | None]:
    """h' = (1 - z) n + z h, in both forms of `linear_before_reset`."""
    if whole.is_ordinary(n):
        return differentiate(n, cotangents, whole.gru)
    return differentiate(n, cotangents, _gru_after if n.attr("linear_before_reset", 0) else _gru_before)


@rule("LSTM", limits=recurrent_problem)
def lstm(n: Site, *cotangents: Array | None) -> Sequence[Array | None]:
    """c' = f c + i g, h' = o h(c')."""
    return differentiate(n, cotangents, whole.lstm if whole.is_ordinary(n) else _lstm)


def _rnn(d: Direction, states: Array, arriving: Arriving) -> Leaving:
    (f,) = d.activations
    before = d.rows(d.before(states, 5))
    argument = d.steps(op.Gemm(before, d.r, op.Gemm(d.rows(d.x), d.w, d.bias, transB=1), transB=1))
    slope = _cut(f.derivative(argument, states), d)

    def step(carried: Sequence[Array], s: Mapping[str, Array]) -> _Step:
        to_h = _with_output(carried[0], s)
        to_argument = to_h * s["slope"]
        return [_passed(xp.matmul(to_argument, d.r), to_h, s)], [to_argument]

    sequences = {"y": arriving.y, "slope": slope, "ended": _ended(d)}
    (to_h,), (to_argument,) = in_steps(d, step, [arriving.h], sequences, reverse=True)
    rows = d.rows(to_argument)
    return through_weights(d, rows, rows, before)._replace(h=to_h)


def _gru_gates(d: Direction, first: Array, second: Array) -> tuple[Array, Array, Array]:
    """Update and reset gate from their arguments' two summands, and the derivative of both."""
    argument = first + second
    gates = d.activations[0](argument)
    update, reset = _split(gates, [d.hidden, d.hidden])
    return update, reset, d.activations[0].derivative(argument, gates)


def _gru_after(d: Direction, states: Array, arriving: Arriving) -> Leaving:
    """The reset gate multiplies the state's product, bias included."""
    g, width = d.activations[1], d.hidden
    entering = d.before(states, 5)
    before = d.rows(entering)
    from_x, from_h = (None, None) if d.biases is None else d.biases
    of_x = d.steps(op.Gemm(d.rows(d.x), d.w, from_x, transB=1))
    of_h = d.steps(op.Gemm(before, d.r, from_h, transB=1))
    gates_x, new_x = _split(of_x, [2 * width, width])
    gates_h, new_h = _split(of_h, [2 * width, width])
    update, reset, slopes = _gru_gates(d, gates_x, gates_h)
    argument = new_x + reset * new_h
    new = g(argument)
    to_new = (1.0 - update) * g.derivative(argument, new)
    # Everything is linear in the state's cotangent: these are its factors.
    to_gates = xp.concat([entering - new, to_new * new_h], axis=-1) * slopes
    to_x = _cut(xp.concat([to_gates, to_new], axis=-1), d)
    to_r = _cut(xp.concat([to_gates, to_new * reset], axis=-1), d)

    def step(carried: Sequence[Array], s: Mapping[str, Array]) -> _Step:
        to_h = _with_output(carried[0], s)
        product = xp.matmul(xp.concat([to_h] * 3, axis=-1) * s["to_r"], d.r)
        return [product + to_h * s["update"]], [to_h]

    sequences = {"y": arriving.y, "to_r": to_r, "update": _kept(update, d)}
    (to_h,), (all_h,) = in_steps(d, step, [arriving.h], sequences, reverse=True)
    tripled = xp.concat([all_h] * 3, axis=-1)
    return through_weights(d, d.rows(tripled * to_x), d.rows(tripled * to_r), before)._replace(h=to_h)


def _gru_before(d: Direction, states: Array, arriving: Arriving) -> Leaving:
    """The reset gate multiplies the state."""
    g, width = d.activations[1], d.hidden
    entering = d.before(states, 5)
    before = d.rows(entering)
    r_gates, r_new = d.n.tracer.emit("Split", d.r, [2 * width, width], axis=0, outputs=2)
    of_x = d.steps(op.Gemm(d.rows(d.x), d.w, d.bias, transB=1))
    gates_x, new_x = _split(of_x, [2 * width, width])
    update, reset, slopes = _gru_gates(d, gates_x, d.steps(op.Gemm(before, r_gates, transB=1)))
    remembered = d.rows(reset * entering)
    argument = new_x + d.steps(op.Gemm(remembered, r_new, transB=1))
    new = g(argument)
    to_new = _cut((1.0 - update) * g.derivative(argument, new), d)
    to_gates = _cut(xp.concat([entering - new, entering], axis=-1) * slopes, d)

    def step(carried: Sequence[Array], s: Mapping[str, Array]) -> _Step:
        to_h = _with_output(carried[0], s)
        to_argument = to_h * s["to_new"]
        to_remembered = xp.matmul(to_argument, r_new)
        to_gate_arguments = xp.concat([to_h, to_remembered], axis=-1) * s["to_gates"]
        product = xp.matmul(to_gate_arguments, r_gates)
        passed = product + to_h * s["update"] + to_remembered * s["reset"]
        return [passed], [xp.concat([to_gate_arguments, to_argument], axis=-1)]

    sequences = {
        "y": arriving.y,
        "to_new": to_new,
        "to_gates": to_gates,
        "update": _kept(update, d),
        "reset": reset,
    }
    (to_h,), (to_all,) = in_steps(d, step, [arriving.h], sequences, reverse=True)
    rows = d.rows(to_all)
    leaving = through_weights(d, rows, rows, before)._replace(h=to_h)
    if leaving.r is None:
        return leaving
    to_gate_arguments, to_argument = _split(rows, [2 * width, width])
    to_r = [op.Gemm(to_gate_arguments, before, transA=1), op.Gemm(to_argument, remembered, transA=1)]
    return leaving._replace(r=xp.concat(to_r, axis=0))


def _lstm(d: Direction, states: Array, arriving: Arriving) -> Leaving:
    """Gates in the order i, o, f, g; peepholes multiply c, c' and c in the first three."""
    (f, g, h), width = d.activations, d.hidden
    before = d.rows(d.before(states, 5))
    argument = d.steps(op.Gemm(before, d.r, op.Gemm(d.rows(d.x), d.w, d.bias, transB=1), transB=1))
    gates, new_argument = _split(argument, [3 * width, width])
    new = g(new_argument)
    peepholes = d.part(d.n.input(7)) if d.n.has(7) else None
    coupled = bool(d.n.attr("input_forget", 0))
    cells = _cells(d, gates, new, peepholes, coupled)
    entering = d.shifted(cells, d.initial(6))
    looked_at = xp.concat([entering, cells, entering], axis=-1)
    if peepholes is not None:
        gates = gates + looked_at * peepholes
    opened = f(gates)
    come_in, out, forget = _split(opened, [width] * 3)
    shown = h(cells)
    if coupled:
        forget = 1.0 - come_in
        from_gates = [new - entering, shown, xp.zeros_like(shown)]
    else:
        from_gates = [new, shown, entering]
    to_gates = xp.concat(from_gates, axis=-1) * f.derivative(gates, opened)
    to_cell = out * h.derivative(cells, shown)
    if peepholes is not None:
        to_in, to_out, to_forget = _split(to_gates * peepholes, [width] * 3)
        to_cell, forget = to_cell + to_out, forget + to_in + to_forget
    to_argument = xp.concat([to_gates, come_in * g.derivative(new_argument, new)], axis=-1)

    def step(carried: Sequence[Array], s: Mapping[str, Array]) -> _Step:
        to_h = _with_output(carried[0], s)
        to_c = carried[1] + to_h * s["to_cell"]
        arriving_at = xp.concat([to_c, to_h, to_c, to_c], axis=-1) * s["to_argument"]
        return [_passed(xp.matmul(arriving_at, d.r), to_h, s), to_c * s["forget"]], [arriving_at]

    sequences = {
        "y": arriving.y,
        "to_cell": _cut(to_cell, d),
        "to_argument": _cut(to_argument, d),
        "forget": _kept(forget, d),
        "ended": _ended(d),
    }
    (to_h, to_c), (to_all,) = in_steps(d, step, [arriving.h, arriving.c], sequences, reverse=True)
    rows = d.rows(to_all)
    to_p = None
    if peepholes is not None:
        to_p = xp.sum(_split(to_all, [3 * width, width])[0] * looked_at, axis=(0, 1))
    return through_weights(d, rows, rows, before)._replace(h=to_h, c=to_c, p=to_p)


def _cells(d: Direction, gates: Array, new: Array, peepholes: Array | None, coupled: bool) -> Array:
    """The cells, which the operator does not give: c' = f c + i g again, and nothing else in each step."""
    f, width = d.activations[0], d.hidden
    if peepholes is None:
        come_in, _, forget = _split(f(gates), [width] * 3)
        forget = 1.0 - come_in if coupled else forget
        added = _cut(come_in * new, d)

        def step(carried: Sequence[Array], s: Mapping[str, Array]) -> _Step:
            cell = carried[0] * s["forget"] + s["added"]
            return [cell], [cell]

        sequences: dict[str, Array | None] = {"forget": _kept(forget, d), "added": added}
    else:
        to_in, _, to_forget = _split(peepholes, [width] * 3)
        in_argument, _, forget_argument = _split(gates, [width] * 3)

        def step(carried: Sequence[Array], s: Mapping[str, Array]) -> _Step:
            come_in = f(s["in"] + carried[0] * to_in)
            forget = 1.0 - come_in if coupled else f(s["forget"] + carried[0] * to_forget)
            cell = carried[0] * forget + come_in * s["new"]
            if "ended" in s:
                cell = cell * (1.0 - s["ended"]) + carried[0] * s["ended"]
            return [cell], [cell]

        sequences = {"in": in_argument, "forget": forget_argument, "new": new, "ended": _ended(d)}
    _, (cells,) = in_steps(d, step, [d.initial(6)], sequences, reverse=False)
    return cells


def _with_output(state: Array, s: Mapping[str, Array]) -> Array:
    return state + s["y"] if "y" in s else state


def _passed(product: Array, state: Array, s: Mapping[str, Array]) -> Array:
    """The cotangent of the state before, which is the state's own where the sequence has ended."""
    return product + state * s["ended"] if "ended" in s else product


def _ended(d: Direction) -> Array | None:
    return None if d.mask is None else 1.0 - d.mask


def _kept(factor: Array, d: Direction) -> Array:
    """A factor of what passes on, one behind a sequence's end."""
    return factor if d.mask is None else factor * d.mask + (1.0 - d.mask)


def _cut(factor: Array, d: Direction) -> Array:
    """A factor that is zero behind a sequence's end."""
    return factor if d.mask is None else factor * d.mask


def _split(x: Array, sizes: list[int]) -> list[Array]:
    return list(x.tracer.emit("Split", x, sizes, axis=-1, outputs=len(sizes)))
