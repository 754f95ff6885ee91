"""torch's LSTM, GRU and RNN as one node for each layer, whatever the sequence's length.

torch.export writes them out step by step, and so fixes their length, as soon as a dimension of time is symbolic. During
export they are therefore replaced by operators that torch takes as they are, `edgeopt::lstm` and so on, and these are
translated here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import onnx
import torch
from onnxscript import opset18
from torch.overrides import TorchFunctionMode

from edgeopt.errors import UnsupportedModelError

__all__ = ["TRANSLATIONS", "WholeRecurrences"]

# Its type variables demand a type for each traced value, which translations do not have.
op: Any = opset18

_SETTINGS = (
    "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first"
)
# The operators live as long as this object, whose class torch has not annotated.
_library: Any = torch.library.Library("edgeopt", "FRAGMENT")  # type: ignore[no-untyped-call]  # see above
_library.define(f"lstm(Tensor input, Tensor[] hx, {_SETTINGS}) -> (Tensor, Tensor, Tensor)")
for _name in ("gru", "rnn_tanh", "rnn_relu"):
    _library.define(f"{_name}(Tensor input, Tensor hx, {_SETTINGS}) -> (Tensor, Tensor)")


def _shapes(
    input: torch.Tensor,  # noqa: A002  # torch passes some arguments by their names in the schema
    hx: Any,
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, ...]:
    """Outputs without values, for tracing."""
    if len(params) != num_layers * (2 if bidirectional else 1) * (4 if has_biases else 2):
        raise UnsupportedModelError("An LSTM with projections (proj_size) has no ONNX operator.")
    states = [hx] if isinstance(hx, torch.Tensor) else list(hx)
    width = states[0].shape[-1] * (2 if bidirectional else 1)
    output = input.new_empty((*input.shape[:-1], width))
    return (output, *(torch.empty_like(state) for state in states))


for _name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
    torch.library.register_fake(f"edgeopt::{_name}", _shapes, lib=_library)

_WHOLE: Mapping[Any, Any] = {
    getattr(torch, name): getattr(torch.ops.edgeopt, name).default for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")
}


_PACK: Any = torch._pack_padded_sequence


class WholeRecurrences(TorchFunctionMode):
    """Within it, recurrent layers are traced as one operator each."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        whole = _WHOLE.get(func)
        # The weights come third, or fourth behind the batch sizes of a packed sequence.
        if func is _PACK or (whole is not None and not isinstance(args[2], (list, tuple))):
            raise UnsupportedModelError("Packed sequences have no ONNX operator: pad them, and mask what is behind.")
        return (whole or func)(*args, **(kwargs or {}))


def _gates_in_order(array: Any, order: Sequence[int]) -> Any:
    """torch's gates in the order of the ONNX operator."""
    if len(order) == 1:
        return array
    parts = op.Split(array, axis=0, num_outputs=len(order))
    return op.Concat(*(parts[gate] for gate in order), axis=0)


def _layer(params: Sequence[Any], has_biases: bool, order: Sequence[int]) -> list[Any]:
    """Weights and bias of one layer, its directions along the first axis."""
    count = 4 if has_biases else 2
    zero = op.Constant(value_ints=[0])
    joined: list[list[Any]] = [[], [], []]
    for first in range(0, len(params), count):
        arrays = [_gates_in_order(array, order) for array in params[first : first + count]]
        parts = [*arrays[:2], op.Concat(arrays[2], arrays[3], axis=0)] if has_biases else arrays
        for place, part in zip(joined, parts, strict=False):
            place.append(op.Unsqueeze(part, zero))
    return [None if not parts else parts[0] if len(parts) == 1 else op.Concat(*parts, axis=0) for parts in joined]


def _recurrent(
    node: Callable[..., Sequence[Any]],
    order: Sequence[int],
    input: Any,  # noqa: A002  # as in the schema
    hx: Any,
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    states = list(hx) if isinstance(hx, Sequence) else [hx]
    directions = 2 if bidirectional else 1
    each = len(params) // num_layers
    x = op.Transpose(input, perm=[1, 0, 2]) if batch_first else input
    last: list[list[Any]] = [[] for _ in states]
    for layer in range(num_layers):
        if layer and train and dropout > 0:
            ratio = onnx.helper.make_tensor("value", onnx.TensorProto.DOUBLE, [], [dropout])
            x, _ = op.Dropout(x, op.CastLike(op.Constant(value=ratio), x), op.Constant(value=_TRUE))
        w, r, b = _layer(params[layer * each : (layer + 1) * each], has_biases, order)
        y, *ends = node(
            x,
            w,
            r,
            b,
            None,
            *(_rows(state, layer * directions, directions, num_layers) for state in states),
            hidden_size=int(params[1].shape[-1]),
            direction="bidirectional" if bidirectional else "forward",
        )
        for place, end in zip(last, ends, strict=True):
            place.append(end)
        # (time, directions, batch, hidden) with the directions side by side.
        batch_now = batch_first and layer == num_layers - 1
        turned = op.Transpose(y, perm=[2, 0, 1, 3] if batch_now else [0, 2, 1, 3])
        x = op.Reshape(turned, op.Constant(value_ints=[0, 0, -1]))
    return (x, *(ends[0] if num_layers == 1 else op.Concat(*ends, axis=0) for ends in last))


_TRUE = onnx.helper.make_tensor("value", onnx.TensorProto.BOOL, [], [True])


def _rows(state: Any, first: int, count: int, num_layers: int) -> Any:
    """The initial states of one layer."""
    if num_layers == 1:
        return state
    start, end, axis = (op.Constant(value_ints=[number]) for number in (first, first + count, 0))
    return op.Slice(state, start, end, axis)


TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    # torch: input, forget, cell, output; ONNX: input, output, forget, cell.
    torch.ops.edgeopt.lstm.default: lambda *args: _recurrent(op.LSTM, (0, 3, 1, 2), *args),
    # torch: reset, update, new; ONNX: update, reset, new.
    torch.ops.edgeopt.gru.default: lambda *args: _recurrent(partial(op.GRU, linear_before_reset=1), (1, 0, 2), *args),
    torch.ops.edgeopt.rnn_tanh.default: lambda *args: _recurrent(op.RNN, (0,), *args),
    torch.ops.edgeopt.rnn_relu.default: lambda *args: _recurrent(
        lambda *operands, direction, **how: op.RNN(
            *operands,
            direction=direction,
            activations=["Relu"] * (2 if direction == "bidirectional" else 1),
            **how,
        ),
        (0,),
        *args,
    ),
}
