"""Convolutions with something before or behind them."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeopt import tracing as xp
from edgeopt.canonical.decompositions.activations import activated, activation_problem, sigmoid_gated
from edgeopt.canonical.registry import decomposition
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site

_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def _only(n: Site, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: n.attr(name) for name in names if n.attr(name) is not None}


@decomposition("com.microsoft::FusedConv", limits=activation_problem)
def fused_conv(n: Site) -> Array:
    """A residual is added before the activation."""
    y = op.Conv(n.x, n.input(1), n.inputs[2] if n.has(2) else None, **_only(n, _CONV))
    return activated(n, y + n.input(3) if n.has(3) else y)


def _channels_first(x: Array) -> Array:
    return op.Transpose(x, perm=[0, x.ndim - 1, *range(1, x.ndim - 1)])


@decomposition("com.microsoft::NhwcConv", "com.microsoft::NhwcFusedConv", limits=activation_problem)
def nhwc_conv(n: Site) -> Array:
    """Channels last; the filters are as always."""
    y = op.Conv(_channels_first(n.x), n.input(1), n.inputs[2] if n.has(2) else None, **_only(n, _CONV))
    if n.has(3):
        y = y + _channels_first(n.input(3))
    return op.Transpose(activated(n, y), perm=[0, *range(2, n.x.ndim), 1])


def _pads_problem(n: Site) -> str | None:
    return "its pads are not known before the run" if n.has(2) and n.constant(2) is None else None


@decomposition("com.microsoft::ConvTransposeWithDynamicPads", limits=_pads_problem)
def conv_transpose(n: Site) -> Array:
    """The pads are an input, which has to be constant."""
    attributes = _only(n, ("auto_pad", "dilations", "group", "kernel_shape", "output_padding", "strides"))
    pads = n.constant(2)
    if pads is not None:
        attributes["pads"] = [int(pad) for pad in pads]
    return op.ConvTranspose(n.x, n.input(1), n.inputs[3] if n.has(3) else None, **attributes)


_EXTENDED = ("channels_last", "state_window", "state_length", "input_channels", "state_update_capacity")


def _causal_problem(n: Site) -> str | None:
    extended = [name for name in _EXTENDED if n.attr(name, 0)]
    if extended:
        return f"its attribute {extended[0]} is not known"
    if n.attr("activation", "none") not in ("none", "silu", "swish"):
        return f"its activation {n.attr('activation')} is not known"
    return None if isinstance(n.input(1).shape[0], int) else "the number of its channels is not known"


@decomposition("CausalConvWithState", "com.microsoft::CausalConvWithState", limits=_causal_problem)
def causal_conv_with_state(n: Site) -> tuple[Array, Array]:
    """A depthwise convolution over what came before along the last axis; its state is the end of what it has seen."""
    x, weight = n.x, n.input(1)
    last, dilation = x.ndim - 1, int(n.attr("dilation", 1))
    reach = [
        (int(size or 1) - 1) for size in (weight.shape[2:] if all(isinstance(d, int) for d in weight.shape) else ())
    ]
    length = reach[-1] * dilation
    if n.has(3):
        seen = xp.concat([n.input(3), x], axis=last)
    else:
        pads = np.zeros(2 * x.ndim, np.int64)
        pads[last] = length
        seen = op.Pad(x, pads)
    sides = [size // 2 for size in reach[:-1]]
    y = op.Conv(
        seen,
        weight,
        n.inputs[2] if n.has(2) else None,
        group=weight.shape[0],
        dilations=[*[1] * len(sides), dilation],
        pads=[*sides, 0, *(size - side for size, side in zip(reach[:-1], sides, strict=True)), 0],
    )
    state = op.Slice(seen, [-length], [np.iinfo(np.int64).max], [last]) if length else op.Slice(seen, [0], [0], [last])
    state = state.with_shape((*x.shape[:-1], length))
    if n.attr("activation", "none") != "none":
        y = sigmoid_gated(y)
    return y.with_shape(x.shape), state
