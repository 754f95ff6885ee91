"""LSTM and GRU in the form that most models have them, each way as one operation over the whole sequence.

The way there keeps what the way back needs: the gates as they were opened, and the cells (of an LSTM) or what the reset
gate multiplies (of a GRU). Its plain body is the operator itself and the gates computed anew; a native kernel computes
them once. It is recorded for the gradient, and the lowering then puts it in the operator's place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgeopt import tracing as xp
from edgeopt.autodiff.recurrent.backward import Arriving, Leaving, in_steps, through_weights
from edgeopt.autodiff.recurrent.direction import Direction, activation_names, directions_of
from edgeopt.tracing import Array, op
from edgeopt.tracing.fusing import all_of, fused
from edgeopt.tracing.shapes import is_static
from edgeopt.tracing.site import Site

__all__ = ["gru", "is_ordinary", "lstm", "recorded"]

_Step = tuple[Sequence[Array], Sequence[Array]]

_ORDINARY = {"GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"]}
# Input, weights, biases and initial states; sequences that end early and peepholes are not ordinary.
_OPERANDS = (0, 1, 2, 3, 5, 6)
_UNUSUAL = (4, 7)


def is_ordinary(n: Site) -> bool:
    """Whether the node is recorded in this form: one direction, the usual activations, sequences of one length."""
    return (
        n.tracer.marks_operations
        and n.tracer.depth == 0
        and n.node.op_type in _ORDINARY
        and [name.lower() for name in activation_names(n)] == _ORDINARY[n.node.op_type]
        and n.attr("direction", "forward") != "bidirectional"
        and not (n.attr("clip", 0.0) or n.attr("input_forget", 0) or n.attr("layout", 0))
        and (n.node.op_type == "LSTM" or bool(n.attr("linear_before_reset", 0)))
        and not any(n.has(position) for position in _UNUSUAL)
        and n.x.dtype == xp.float32
        and is_static([n.x.shape[-1], *n.input(1).shape, *n.input(2).shape])
    )


def recorded(n: Site) -> list[Array] | None:
    """What stands for the node's outputs, where its gradient has been recorded in this form."""
    results: list[Array] | None = n.tracer.stand_ins.get(n.node)
    return results


def _forward(n: Site) -> list[Array]:
    """The node's outputs, all that the operator has, then gates and cells (or what the reset gate multiplies)."""
    given = [position for position in _OPERANDS if n.has(position)]
    count = 3 if n.node.op_type == "LSTM" else 2

    def plain(*arrays: Array) -> list[Array]:
        inside = Site(n.tracer, n.node)
        operands = dict(zip(given, arrays, strict=True))
        inside.inputs = tuple(operands.get(position) for position in range(len(n.inputs)))
        attributes = {name: attribute.value for name, attribute in n.node.attributes.items()}
        outputs = n.tracer.emit(n.node.op_type, *inside.inputs, outputs=count, **attributes)
        (direction,) = directions_of(inside)
        states = direction.states(outputs[0])
        return [*outputs, *(_lstm_record if count == 3 else _gru_record)(direction, states)]

    arrays = [n.input(position) for position in given]
    backwards = int(n.attr("direction", "forward") == "reverse")
    results = all_of(fused(f"{n.node.op_type}Forward", arrays, plain, given=given, backwards=backwards))
    n.tracer.stand_ins[n.node] = results
    return results


def _lstm_record(d: Direction, states: Array) -> list[Array]:
    width = d.hidden
    before = d.rows(d.before(states, 5))
    argument = d.steps(op.Gemm(before, d.r, op.Gemm(d.rows(d.x), d.w, d.bias, transB=1), transB=1))
    gates, new = d.n.tracer.emit("Split", argument, [3 * width, width], axis=-1, outputs=2)
    opened, new = op.Sigmoid(gates), xp.tanh(new)
    come_in, _, forget = d.n.tracer.emit("Split", opened, [width] * 3, axis=-1, outputs=3)

    def step(carried: Sequence[Array], s: Mapping[str, Array]) -> _Step:
        cell = carried[0] * s["forget"] + s["added"]
        return [cell], [cell]

    _, (cells,) = in_steps(d, step, [d.initial(6)], {"forget": forget, "added": come_in * new}, reverse=False)
    return [xp.concat([opened, new], axis=-1), cells]


def _gru_record(d: Direction, states: Array) -> list[Array]:
    width = d.hidden
    before = d.rows(d.before(states, 5))
    from_x, from_h = (None, None) if d.biases is None else d.biases
    of_x = d.steps(op.Gemm(d.rows(d.x), d.w, from_x, transB=1))
    of_h = d.steps(op.Gemm(before, d.r, from_h, transB=1))
    gates_x, new_x = d.n.tracer.emit("Split", of_x, [2 * width, width], axis=-1, outputs=2)
    gates_h, new_h = d.n.tracer.emit("Split", of_h, [2 * width, width], axis=-1, outputs=2)
    opened = op.Sigmoid(gates_x + gates_h)
    _, reset = d.n.tracer.emit("Split", opened, [width] * 2, axis=-1, outputs=2)
    return [xp.concat([opened, xp.tanh(new_x + reset * new_h)], axis=-1), op.Identity(new_h)]


def lstm(d: Direction, states: Array, arriving: Arriving) -> Leaving:
    """c' = f c + i g, h' = o tanh(c'); gates in the order i, o, f, g."""
    *_, gates, cells = _forward(d.n)
    width, has_y = d.hidden, arriving.y is not None
    operands = [d.r, gates, cells, d.initial(6), arriving.h, arriving.c, *([] if arriving.y is None else [arriving.y])]

    def plain(r: Array, gates: Array, cells: Array, initial: Array, h: Array, c: Array, *y: Array) -> list[Array]:
        emit = d.n.tracer.emit
        opened, new = emit("Split", gates, [3 * width, width], axis=-1, outputs=2)
        come_in, out, forget = emit("Split", opened, [width] * 3, axis=-1, outputs=3)
        shown, entering = xp.tanh(cells), d.shifted(cells, initial)
        to_gates = xp.concat([new, shown, entering], axis=-1) * (opened * (1.0 - opened))
        to_argument = xp.concat([to_gates, come_in * (1.0 - new * new)], axis=-1)

        def step(carried: Sequence[Array], s: Mapping[str, Array]) -> _Step:
            to_h = carried[0] + s["y"] if has_y else carried[0]
            to_c = carried[1] + to_h * s["to_cell"]
            arriving_at = xp.concat([to_c, to_h, to_c, to_c], axis=-1) * s["to_argument"]
            return [xp.matmul(arriving_at, r), to_c * s["forget"]], [arriving_at]

        sequences = {
            "y": y[0] if y else None,
            "to_cell": out * (1.0 - shown * shown),
            "to_argument": to_argument,
            "forget": forget,
        }
        (to_h, to_c), (to_all,) = in_steps(d, step, [h, c], sequences, reverse=True)
        return [to_all, to_h, to_c]

    to_all, to_h, to_c = all_of(fused("LSTMBackward", operands, plain, backwards=int(d.backwards)))
    rows = d.rows(to_all)
    return through_weights(d, rows, rows, d.rows(d.before(states, 5)))._replace(h=to_h, c=to_c)


def gru(d: Direction, states: Array, arriving: Arriving) -> Leaving:
    """h' = (1 - z) n + z h, where the reset gate multiplies the state's product, bias included."""
    *_, gates, kept = _forward(d.n)
    width, has_y = d.hidden, arriving.y is not None
    operands = [d.r, gates, kept, d.initial(5), states, arriving.h, *([] if arriving.y is None else [arriving.y])]

    def plain(r: Array, gates: Array, kept: Array, initial: Array, states: Array, h: Array, *y: Array) -> list[Array]:
        opened, new = d.n.tracer.emit("Split", gates, [2 * width, width], axis=-1, outputs=2)
        update, reset = d.n.tracer.emit("Split", opened, [width] * 2, axis=-1, outputs=2)
        to_new = (1.0 - update) * (1.0 - new * new)
        # Everything is linear in the state's cotangent: these are its factors.
        to_gates = xp.concat([d.shifted(states, initial) - new, to_new * kept], axis=-1) * (opened * (1.0 - opened))
        to_x, to_r = xp.concat([to_gates, to_new], axis=-1), xp.concat([to_gates, to_new * reset], axis=-1)

        def step(carried: Sequence[Array], s: Mapping[str, Array]) -> _Step:
            to_h = carried[0] + s["y"] if has_y else carried[0]
            product = xp.matmul(xp.concat([to_h] * 3, axis=-1) * s["to_r"], r)
            return [product + to_h * s["update"]], [to_h]

        sequences = {"y": y[0] if y else None, "to_r": to_r, "update": update}
        (to_h,), (all_h,) = in_steps(d, step, [h], sequences, reverse=True)
        tripled = xp.concat([all_h] * 3, axis=-1)
        return [tripled * to_x, tripled * to_r, to_h]

    to_x, to_r, to_h = all_of(fused("GRUBackward", operands, plain, backwards=int(d.backwards)))
    return through_weights(d, d.rows(to_x), d.rows(to_r), d.rows(d.before(states, 5)))._replace(h=to_h)
