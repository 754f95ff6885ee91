"""LSTM, GRU and RNN that ONNX Runtime's CPU provider lacks: in float64, and with the batch as the first axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from edgeopt.autodiff.recurrent import whole
from edgeopt.autodiff.recurrent.backward import in_steps
from edgeopt.autodiff.recurrent.direction import Direction, activation_parameters, directions_of
from edgeopt.lowering.registry import is_double, lowering
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site

_Step = tuple[Sequence[Array], Sequence[Array]]


@lowering("RNN", "GRU", "LSTM", when=lambda n: bool(n.attr("layout", 0)))
def batch_first(n: Site) -> Sequence[Array]:
    """Transposed there and back."""
    inputs = list(n.inputs)
    inputs[0] = op.Transpose(n.x, perm=[1, 0, 2])
    for position in (5, 6):
        if n.has(position):
            inputs[position] = op.Transpose(n.input(position), perm=[1, 0, 2])
    attributes = {name: attribute.value for name, attribute in n.node.attributes.items() if name != "layout"}
    y, *last = n.tracer.emit(n.node.op_type, *inputs, outputs=len(n.outputs), **attributes)
    return [op.Transpose(y, perm=[2, 0, 1, 3]), *(op.Transpose(state, perm=[1, 0, 2]) for state in last)]


def _leaves_parameters_out(n: Site) -> bool:
    alphas, betas = activation_parameters(n)
    return len(alphas) > len(n.attr("activation_alpha") or ()) or len(betas) > len(n.attr("activation_beta") or ())


@lowering("RNN", "GRU", "LSTM", when=_leaves_parameters_out)
def with_parameters(n: Site) -> Sequence[Array]:
    """1.17 takes zero for a parameter that is left out, and so does 1.32 for some."""
    alphas, betas = activation_parameters(n)
    attributes = {name: attribute.value for name, attribute in n.node.attributes.items()}
    attributes |= {"activation_alpha": alphas or None, "activation_beta": betas or None}
    return n.tracer.emit(n.node.op_type, *n.inputs, outputs=len(n.outputs), **attributes)


@lowering("GRU", "LSTM", when=lambda n: whole.recorded(n) is not None)
def with_record(n: Site) -> Sequence[Array]:
    """The operation that the gradient was recorded with, which keeps what the way back needs."""
    return (whole.recorded(n) or [])[: len(n.outputs)]


@lowering("RNN", "GRU", "LSTM", when=is_double)
def recurrent(n: Site) -> Sequence[Array]:
    """Step by step, each direction a Scan."""
    found = [_CELLS[n.node.op_type](direction) for direction in directions_of(n)]
    joined = []
    for position, axis in zip(range(len(n.outputs)), (1, 0, 0), strict=False):
        parts = [op.Unsqueeze(states[position], [axis]) for states in found]
        array = parts[0] if len(parts) == 1 else op.Concat(*parts, axis=axis)
        joined.append(array)
    return joined


def _run(
    d: Direction,
    step: Callable[[Sequence[Array], Mapping[str, Array]], list[Array]],
    initial: Sequence[Array],
    sequences: Mapping[str, Array],
) -> list[Array]:
    """The states after each step, then the last of each kind; where a sequence has ended they stay, and show zero."""

    def masked(carried: Sequence[Array], s: Mapping[str, Array]) -> _Step:
        states = step(carried, s)
        if "mask" not in s:
            return states, states[:1]
        kept = [new * s["mask"] + old * (1.0 - s["mask"]) for new, old in zip(states, carried, strict=True)]
        return kept, [states[0] * s["mask"]]

    last, (all_states,) = in_steps(d, masked, initial, {**sequences, "mask": d.mask}, reverse=False)
    return [all_states, *map(d.last, last)]


def _of_x(d: Direction, bias: Array | None) -> Array:
    return d.steps(op.Gemm(d.rows(d.x), d.w, bias, transB=1))


def _split(x: Array, sizes: list[int]) -> list[Array]:
    return list(x.tracer.emit("Split", x, sizes, axis=-1, outputs=len(sizes)))


def _rnn(d: Direction) -> list[Array]:
    def step(carried: Sequence[Array], s: Mapping[str, Array]) -> list[Array]:
        return [d.activations[0](op.Gemm(carried[0], d.r, s["x"], transB=1))]

    return _run(d, step, [d.initial(5)], {"x": _of_x(d, d.bias)})


def _gru(d: Direction) -> list[Array]:
    (f, g), width = d.activations, d.hidden
    after = d.n.attr("linear_before_reset", 0)
    from_x, from_h = (None, None) if d.biases is None else d.biases
    r_gates, r_new = d.n.tracer.emit("Split", d.r, [2 * width, width], axis=0, outputs=2)
    b_gates, b_new = (None, None) if from_h is None else _split(from_h, [2 * width, width])

    def step(carried: Sequence[Array], s: Mapping[str, Array]) -> list[Array]:
        state = carried[0]
        gates_x, new_x = _split(s["x"], [2 * width, width])
        gates = op.Gemm(state, r_gates, b_gates, transB=1) + gates_x
        update, reset = _split(f(gates), [width, width])
        of_state = op.Gemm(state if after else reset * state, r_new, b_new, transB=1)
        new = g(new_x + (reset * of_state if after else of_state))
        return [(1.0 - update) * new + update * state]

    return _run(d, step, [d.initial(5)], {"x": _of_x(d, from_x)})


def _lstm(d: Direction) -> list[Array]:
    (f, g, h), width = d.activations, d.hidden
    peepholes = _split(d.part(d.n.input(7)), [width] * 3) if d.n.has(7) else None

    def step(carried: Sequence[Array], s: Mapping[str, Array]) -> list[Array]:
        state, cell = carried
        arguments = _split(op.Gemm(state, d.r, s["x"], transB=1), [width] * 4)

        def gate(position: int, seen: Array) -> Array:
            return f(arguments[position] if peepholes is None else arguments[position] + seen * peepholes[position])

        come_in = gate(0, cell)
        forget = 1.0 - come_in if d.n.attr("input_forget", 0) else gate(2, cell)
        following = forget * cell + come_in * g(arguments[3])
        return [gate(1, following) * h(following), following]

    return _run(d, step, [d.initial(5), d.initial(6)], {"x": _of_x(d, d.bias)})


_CELLS = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}
