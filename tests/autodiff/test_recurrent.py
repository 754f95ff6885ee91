"""LSTM, GRU and RNN against the standard's formulas written in torch, and against torch's own operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgeopt.autodiff import backward
from edgeopt.autodiff.recurrent.activations import ACTIVATIONS
from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import recurrent
from edgeopt.errors import UnsupportedOperatorError
from edgeopt.tracing import Array, Tracer, new_graph, op

TIME, BATCH, FEATURES, HIDDEN = 3, 3, 2, 2
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
DEFAULTS = {"GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"], "RNN": ["Tanh"]}

REFERENCES: dict[str, Callable[..., torch.Tensor]] = {
    "Affine": lambda x, a, b: a * x + b,
    "Elu": lambda x, a, b: torch.where(x > 0, x, a * torch.expm1(x)),
    "HardSigmoid": lambda x, a, b: torch.clamp(a * x + b, 0, 1),
    "LeakyRelu": lambda x, a, b: functional.leaky_relu(x, a),
    "Relu": lambda x, a, b: torch.relu(x),
    "ScaledTanh": lambda x, a, b: a * torch.tanh(b * x),
    "Sigmoid": lambda x, a, b: torch.sigmoid(x),
    "Softplus": lambda x, a, b: functional.softplus(x),
    "Softsign": lambda x, a, b: functional.softsign(x),
    "Tanh": lambda x, a, b: torch.tanh(x),
    "ThresholdedRelu": lambda x, a, b: torch.where(x > a, x, torch.zeros_like(x)),
}
PARAMETERS = {
    "Affine": (1.0, 0.0),
    "Elu": (1.0, None),
    "HardSigmoid": (0.2, 0.5),
    "LeakyRelu": (0.01, None),
    "ScaledTanh": (1.0, 1.0),
    "ThresholdedRelu": (1.0, None),
}


def activations_of(names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]) -> list[Any]:
    """Functions whose parameters are taken in order from both lists."""
    left_alphas, left_betas = list(alphas), list(betas)
    bound = []
    for name in names:
        alpha, beta = PARAMETERS.get(name, (None, None))
        a = alpha if alpha is None or not left_alphas else left_alphas.pop(0)
        b = beta if beta is None or not left_betas else left_betas.pop(0)
        bound.append(lambda x, name=name, a=a, b=b: REFERENCES[name](x, a, b))
    return bound


def one_step(kind: str, how: dict[str, Any], f: list[Any], x: Any, states: list[Any], w: Any, r: Any, b: Any, p: Any):
    """The formulas of the standard; the next states, h first."""
    h, clip = states[0], how.get("clip")
    wb, rb = b.chunk(2)

    def cut(argument: torch.Tensor) -> torch.Tensor:
        return argument if clip is None else argument.clamp(-clip, clip)

    if kind == "RNN":
        return [f[0](cut(x @ w.T + h @ r.T + wb + rb))]
    if kind == "GRU":
        (wz, wr, wh), (rz, rr, rh) = w.chunk(3), r.chunk(3)
        (bz, br, bh), (cz, cr, ch) = wb.chunk(3), rb.chunk(3)
        z = f[0](cut(x @ wz.T + h @ rz.T + bz + cz))
        reset = f[0](cut(x @ wr.T + h @ rr.T + br + cr))
        new = reset * (h @ rh.T + ch) if how.get("linear_before_reset") else (reset * h) @ rh.T + ch
        return [(1 - z) * f[1](cut(x @ wh.T + bh + new)) + z * h]
    c = states[1]
    i, o, g, n = (x @ w.T + h @ r.T + wb + rb).chunk(4, -1)
    pi, po, pf = p.chunk(3)
    come_in = f[0](cut(i + pi * c))
    forget = 1 - come_in if how.get("input_forget") else f[0](cut(g + pf * c))
    cell = forget * c + come_in * f[1](cut(n))
    return [f[0](cut(o + po * cell)) * f[2](cell), cell]


def by_the_standard(kind: str, inputs: str, lengths: Sequence[int] | None, how: dict[str, Any]) -> Callable[..., Any]:
    count = 2 if how.get("direction") == "bidirectional" else 1

    def run(*arrays: torch.Tensor) -> torch.Tensor:
        given = dict(zip(inputs, arrays, strict=True))
        if how.get("layout"):
            given |= {name: given[name].transpose(0, 1) for name in "xhc" if name in given}
        x, gates = given["x"], GATES[kind]
        shapes = {"b": (2 * gates * HIDDEN,), "h": (BATCH, HIDDEN), "c": (BATCH, HIDDEN), "p": (3 * HIDDEN,)}
        names = how.get("activations", DEFAULTS[kind] * count)
        functions = activations_of(names, how.get("activation_alpha", ()), how.get("activation_beta", ()))
        each = len(functions) // count
        ys, lasts = [], []
        for d in range(count):
            part = {k: given[k][d] if k in given else torch.zeros(s, dtype=x.dtype) for k, s in shapes.items()}
            states = [part["h"], part["c"]] if kind == "LSTM" else [part["h"]]
            outputs = [torch.zeros_like(part["h"])] * len(x)
            order = range(len(x))
            for t in reversed(order) if d or how.get("direction") == "reverse" else order:
                f = functions[d * each : (d + 1) * each]
                new = one_step(kind, how, f, x[t], states, given["w"][d], given["r"][d], part["b"], part["p"])
                on = torch.tensor([[t < length] for length in lengths or [TIME] * BATCH])
                states = [torch.where(on, after, before) for after, before in zip(new, states, strict=True)]
                outputs[t] = torch.where(on, new[0], torch.zeros_like(new[0]))
            ran = torch.tensor([[float(length > 0)] for length in lengths or [TIME] * BATCH], dtype=x.dtype)
            ys.append(torch.stack(outputs))
            lasts.append([state * ran for state in states])
        y = torch.stack(ys, 1)
        ends = [torch.stack(list(states)) for states in zip(*lasts, strict=True)]
        if how.get("layout"):
            y, ends = y.permute(2, 0, 1, 3), [end.transpose(0, 1) for end in ends]
        return chosen([y, *ends], how.get("output"), lambda x: x.reshape(-1), torch.cat)

    return run


def chosen(outputs: Sequence[Any], which: int | None, flatten: Callable[..., Any], join: Callable[..., Any]) -> Any:
    """One output, or all of them as one vector."""
    return join([flatten(output) for output in outputs]) if which is None else outputs[which]


def case(
    kind: str, inputs: str = "xwrb", lengths: Sequence[int] | None = None, reference: Any = None, **how: Any
) -> tuple[Any, ...]:
    """A row: the operator with these of its inputs, and with `output` to look at one output only."""
    count, gates = 2 if how.get("direction") == "bidirectional" else 1, GATES[kind]
    first = (BATCH, TIME) if how.get("layout") else (TIME, BATCH)
    state = (BATCH, count, HIDDEN) if how.get("layout") else (count, BATCH, HIDDEN)
    shapes = {
        "x": (*first, FEATURES),
        "w": (count, gates * HIDDEN, FEATURES),
        "r": (count, gates * HIDDEN, HIDDEN),
        "b": (count, 2 * gates * HIDDEN),
        "h": state,
        "c": state,
        "p": (count, 3 * HIDDEN),
    }
    attributes = {name: value for name, value in how.items() if name != "output"}

    def function(*arrays: Array) -> Array:
        given: dict[str, Any] = dict(zip(inputs, arrays, strict=True))
        tracer = given["x"].tracer
        if lengths is not None:
            given["l"] = tracer.constant(np.asarray(lengths, np.int32))
        operands = [given.get(name) for name in ("xwrblhcp" if kind == "LSTM" else "xwrblh")]
        outputs = tracer.emit(kind, *operands, outputs=3 if kind == "LSTM" else 2, hidden_size=HIDDEN, **attributes)
        return chosen(
            outputs, how.get("output"), lambda x: op.Reshape(x, [-1]), lambda parts: op.Concat(*parts, axis=0)
        )

    return kind, reference or by_the_standard(kind, inputs, lengths, how), [shapes[name] for name in inputs], function


def in_torchs_order(order: Sequence[int]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda array: torch.cat([array.chunk(len(order))[gate] for gate in order])


def torchs_lstm(x: Any, w: Any, r: Any, b: Any, h: Any, c: Any) -> torch.Tensor:
    turn = in_torchs_order([0, 2, 3, 1])
    weights = [turn(part) for d in range(2) for part in (w[d], r[d], *b[d].chunk(2))]
    y, *ends = torch.lstm(x, [h, c], weights, True, 1, 0.0, False, True, False)
    y = y.reshape(TIME, BATCH, 2, HIDDEN).transpose(1, 2)
    return torch.cat([part.reshape(-1) for part in (y, *ends)])


def torchs_gru(x: Any, w: Any, r: Any, b: Any, h: Any) -> torch.Tensor:
    turn = in_torchs_order([1, 0, 2])
    weights = [turn(part) for part in (w[0], r[0], *b[0].chunk(2))]
    y, end = torch.gru(x, h, weights, True, 1, 0.0, False, False, False)
    return torch.cat([y.reshape(-1), end.reshape(-1)])


def torchs_rnn(x: Any, w: Any, r: Any, b: Any, h: Any) -> torch.Tensor:
    y, end = torch.rnn_relu(x, h, [w[0], r[0], *b[0].chunk(2)], True, 1, 0.0, False, False, False)
    return torch.cat([y.reshape(-1), end.reshape(-1)])


BOTH: dict[str, Any] = {"direction": "bidirectional"}
UNEVEN = [2, 3, 1]

# Second derivatives of these are checked too.
TWICE: list[tuple[Any, ...]] = [
    case("LSTM", "xwrbhc", reference=torchs_lstm, **BOTH),
    case("GRU", "xwrbh", reference=torchs_gru, linear_before_reset=1),
    case("RNN", "xwrbh", reference=torchs_rnn, activations=["Relu"]),
    case("LSTM", "xwrbhcp", UNEVEN, direction="reverse"),
    case("GRU", "xwrbh", UNEVEN, direction="reverse"),
]

ROWS: list[tuple[Any, ...]] = [
    *(
        case(kind, "xwrbhc" if kind == "LSTM" else "xwrbh", lengths, **BOTH, **more)
        for kind, more in (("LSTM", {}), ("GRU", {}), ("GRU", {"linear_before_reset": 1}), ("RNN", {}))
        for lengths in (None, UNEVEN)
    ),
    *(case(kind, "xwr", direction="reverse", output=0) for kind in GATES),
    *(case(kind, "xwrb", output=1) for kind in GATES),
    *(case(kind, "xwrbh", [3, 0, 1], layout=0) for kind in GATES),
    *(case(kind, "xwrbh", layout=1, **BOTH) for kind in GATES),
    *(case(kind, clip=0.4) for kind in GATES),
    case("LSTM", output=2),
    case("LSTM", "xwrbc", UNEVEN, direction="reverse", output=1),
    case("LSTM", "xwrbp"),
    case("LSTM", "xwrbhcp", UNEVEN, **BOTH),
    case("LSTM", "xwrbp", clip=0.4),
    case("LSTM", "xwrbcp", input_forget=1, clip=0.7),
    case("LSTM", input_forget=1),
    case("GRU", linear_before_reset=1, clip=0.4),
    *(case("RNN", activations=[name]) for name in REFERENCES),
    # The default of the operator's definition, which passes over a model may write out.
    case("RNN", activations=["Tanh", "Tanh"]),
    *(case("RNN", activations=[name], activation_alpha=[0.7], activation_beta=[0.3]) for name in PARAMETERS),
    case("GRU", activations=["HardSigmoid", "Softsign"], activation_alpha=[0.3]),
    case(
        "LSTM",
        activations=["HardSigmoid", "Tanh", "LeakyRelu", "Sigmoid", "ScaledTanh", "Elu"],
        activation_alpha=[0.3, 0.05, 0.6, 0.7],
        activation_beta=[0.4, 1.2],
        **BOTH,
    ),
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row, order=1)


@pytest.mark.parametrize("position", range(len(TWICE)))
def test_second_derivatives(position: int, check_row: Callable[..., None]) -> None:
    check_row(TWICE[position])


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == recurrent.__name__}
    assert rules == {row[0] for row in ROWS}
    assert {name.lower() for name in REFERENCES} == set(ACTIVATIONS)


@pytest.mark.parametrize("position", [0, 1, 2])
def test_named_dimensions(position: int, check_row_with_names: Callable[..., None]) -> None:
    kind, _, _, function = TWICE[position]
    how: dict[str, Any] = [BOTH, {"linear_before_reset": 1}, {"activations": ["Relu"]}][position]
    inputs = "xwrbhc" if kind == "LSTM" else "xwrbh"
    count, width = (2 if how is BOTH else 1), GATES[kind] * HIDDEN
    dims: list[tuple[int | str, ...]] = [
        ("time", "batch", FEATURES),
        (count, width, FEATURES),
        (count, width, HIDDEN),
        (count, 2 * width),
        *[(count, "batch", HIDDEN)] * (len(inputs) - 4),
    ]
    shapes = [tuple(BATCH if dim == "batch" else dim for dim in shape) for shape in dims]
    check_row_with_names((kind, by_the_standard(kind, inputs, None, how), shapes, function), dims)


def test_frozen_weights_cost_no_product() -> None:
    """onnxruntime-training crashes where the weights of an LSTM are frozen."""
    tracer = Tracer(new_graph("frozen"))
    x = tracer.input("x", np.float32, ("time", "batch", FEATURES))
    w, r = (np.ones((1, 4 * HIDDEN, size), np.float32) for size in (FEATURES, HIDDEN))
    y = tracer.emit("LSTM", x, w, r, outputs=1, hidden_size=HIDDEN)[0]
    (gradient,) = backward(tracer, {y.value: y}, [x.value])
    assert gradient is not None
    assert not [node for node in tracer.graph if node.attributes.get_int("transA", 0)]


def test_activations_of_no_standard_are_refused() -> None:
    tracer = Tracer(new_graph("refused"))
    x = tracer.input("x", np.float32, (TIME, BATCH, FEATURES))
    w, r = (np.ones((1, HIDDEN, size), np.float32) for size in (FEATURES, HIDDEN))
    y = tracer.emit("RNN", x, w, r, outputs=1, hidden_size=HIDDEN, activations=["Swish"])[0]
    with pytest.raises(UnsupportedOperatorError, match="Swish"):
        backward(tracer, {y.value: y}, [x.value])
