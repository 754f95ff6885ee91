"""What each input of each operator usually is, and why.

Inputs that are not here are data: activations, or what a role is guessed of by the operators around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import onnx_ir as ir

__all__ = ["ARITHMETIC", "PASSING", "PRODUCTS", "Kind", "Row", "row_of"]

Kind = str
WEIGHT = "weight"
STATISTIC = "statistic"
SETTING = "setting"
STATE = "state"
DATA = "data"


class Row(NamedTuple):
    """What an input is: its kind, and in words."""

    kind: Kind
    reason: str


_W, _B = Row(WEIGHT, "weight of a {op}"), Row(WEIGHT, "bias of a {op}")
_GAIN, _SHIFT = Row(WEIGHT, "scale of a {op}"), Row(WEIGHT, "shift of a {op}")
_TABLE = Row(WEIGHT, "table that a {op} reads")
_MEAN, _VARIANCE = Row(STATISTIC, "running mean of a {op}"), Row(STATISTIC, "running variance of a {op}")
_BOUND, _SCALE = Row(SETTING, "bound of a {op}"), Row(SETTING, "scale of a {op}")
_COMPARED = Row(SETTING, "threshold of a {op}")
_PLACES = Row(SETTING, "places that a {op} reads")
_ANGLES = Row(SETTING, "cosines or sines of a {op}")
_STATE = Row(STATE, "first state of a {op}")
_MASK = Row(SETTING, "mask of a {op}")
_PADDING = Row(SETTING, "padding of a {op}")
_CACHE = Row(STATE, "cache of a {op}")

_RECURRENT = {1: _W, 2: Row(WEIGHT, "recurrent weight of a {op}"), 3: _B, 5: _STATE, 6: _STATE}
_COMPARISON = {0: _COMPARED, 1: _COMPARED}
_NORMALISATION = {1: _GAIN, 2: _SHIFT}
_CONVOLUTION = {1: _W, 2: _B}
_PRODUCT = {0: Row(WEIGHT, "factor of a {op}"), 1: _W}
_QUANTIZATION = {1: _SCALE, 2: Row(SETTING, "zero point of a {op}")}

_TABLE_OF: Mapping[str, Mapping[int, Row]] = {
    "AffineGrid": {0: Row(DATA, "transformation of a {op}")},
    "Attention": {3: _MASK, 4: _CACHE, 5: _CACHE},
    "BatchNormalization": {**_NORMALISATION, 3: _MEAN, 4: _VARIANCE},
    "CausalConvWithState": {**_CONVOLUTION, 3: _STATE},
    "Clip": {1: _BOUND, 2: _BOUND},
    "Conv": _CONVOLUTION,
    "ConvTranspose": _CONVOLUTION,
    "DeformConv": {1: _W, 2: _PLACES, 3: _B, 4: _MASK},
    "DequantizeLinear": _QUANTIZATION,
    "Dropout": {1: Row(SETTING, "ratio of a {op}")},
    "Einsum": dict.fromkeys(range(8), Row(WEIGHT, "factor of an {op}")),
    "Equal": _COMPARISON,
    "GRU": _RECURRENT,
    "Gather": {0: _TABLE},
    "GatherElements": {0: _TABLE},
    "GatherND": {0: _TABLE},
    "Gemm": {**_PRODUCT, 2: _B},
    "Greater": _COMPARISON,
    "GreaterOrEqual": _COMPARISON,
    "GridSample": {1: _PLACES},
    "GroupNormalization": _NORMALISATION,
    "InstanceNormalization": _NORMALISATION,
    "LSTM": {**_RECURRENT, 7: Row(WEIGHT, "peepholes of a {op}")},
    "LayerNormalization": _NORMALISATION,
    "Less": _COMPARISON,
    "LessOrEqual": _COMPARISON,
    "LinearAttention": {3: _STATE},
    "MatMul": _PRODUCT,
    "MaxRoiPool": {1: _PLACES},
    "MelWeightMatrix": dict.fromkeys(range(5), Row(SETTING, "setting of a {op}")),
    "NegativeLogLikelihoodLoss": {2: Row(SETTING, "weights of classes")},
    "NonMaxSuppression": {0: _PLACES, 3: _COMPARED, 4: _COMPARED},
    "OneHot": {2: Row(SETTING, "the two values of a {op}")},
    "PRelu": {1: Row(WEIGHT, "slope of a {op}")},
    "Pad": {2: _PADDING},
    "QLinearConv": {1: _SCALE, 4: _SCALE, 6: _SCALE},
    "QLinearMatMul": dict.fromkeys((1, 2, 4, 5, 6, 7), _SCALE),
    "QuantizeLinear": _QUANTIZATION,
    "RMSNormalization": {1: _GAIN},
    "RNN": _RECURRENT,
    "Range": dict.fromkeys(range(3), Row(SETTING, "end or step of a {op}")),
    "Resize": {1: _PLACES, 2: _SCALE},
    "RoiAlign": {1: _PLACES},
    "RotaryEmbedding": {1: _ANGLES, 2: _ANGLES},
    "STFT": {2: Row(SETTING, "window of a {op}")},
    "SoftmaxCrossEntropyLoss": {2: Row(SETTING, "weights of classes")},
    "TensorScatter": {0: _CACHE},
    "Upsample": {1: _SCALE},
    "com.microsoft::Attention": {1: _W, 2: _B, 3: _MASK, 4: _CACHE, 5: Row(WEIGHT, "bias of attention scores")},
    "com.microsoft::BiasAdd": {1: _B},
    "com.microsoft::BiasDropout": {1: _B, 3: Row(SETTING, "ratio of a {op}")},
    "com.microsoft::BiasGelu": {1: _B},
    "com.microsoft::BiasSoftmax": {1: _MASK},
    "com.microsoft::BiasSplitGelu": {1: _B},
    "com.microsoft::CausalConvWithState": {**_CONVOLUTION, 3: _STATE},
    "com.microsoft::ConvTransposeWithDynamicPads": {1: _W, 3: _B},
    "com.microsoft::DequantizeLinear": _QUANTIZATION,
    "com.microsoft::EmbedLayerNormalization": {2: _TABLE, 3: _TABLE, 4: _TABLE, 5: _GAIN, 6: _SHIFT},
    "com.microsoft::FastGelu": {1: _B},
    "com.microsoft::FusedConv": _CONVOLUTION,
    "com.microsoft::FusedGemm": {**_PRODUCT, 2: _B},
    "com.microsoft::FusedMatMul": _PRODUCT,
    "com.microsoft::FusedMatMulActivation": _PRODUCT,
    "com.microsoft::GatedRelativePositionBias": {1: _B, 2: _TABLE, 3: _W, 4: _B, 5: Row(WEIGHT, "scale of a {op}")},
    "com.microsoft::GemmFastGelu": {1: _W, 2: _B},
    "com.microsoft::GridSample": {1: _PLACES},
    "com.microsoft::GroupNorm": _NORMALISATION,
    "com.microsoft::GroupQueryAttention": {3: _CACHE, 4: _CACHE, 7: _ANGLES, 8: _ANGLES},
    "com.microsoft::MatMulBnb4": {2: _SCALE},
    "com.microsoft::MatMulNBits": {2: _SCALE, 3: _SCALE, 5: _B},
    "com.microsoft::MultiHeadAttention": {3: _B, 4: _MASK, 5: _MASK, 6: _CACHE, 7: _CACHE},
    "com.microsoft::NhwcConv": _CONVOLUTION,
    "com.microsoft::NhwcFusedConv": _CONVOLUTION,
    "com.microsoft::Pad": {2: _PADDING},
    "com.microsoft::QuantizeLinear": _QUANTIZATION,
    "com.microsoft::RelativePositionBias": {0: _TABLE},
    "com.microsoft::RotaryEmbedding": {2: _ANGLES, 3: _ANGLES},
    "com.microsoft::SimplifiedLayerNormalization": {1: _GAIN},
    "com.microsoft::SkipGroupNorm": {1: _GAIN, 2: _SHIFT, 4: _B},
    "com.microsoft::SkipLayerNormalization": {2: _GAIN, 3: _SHIFT, 4: _B},
    "com.microsoft::SkipSimplifiedLayerNormalization": {2: _GAIN, 3: _B},
    "com.microsoft::TorchEmbedding": {0: _TABLE},
    "com.microsoft::TransposeMatMul": _PRODUCT,
    "SimplifiedLayerNormalization": {1: _GAIN},
}

#: Operators behind which an addition is a bias.
PRODUCTS = frozenset(
    {"Conv", "ConvTranspose", "Einsum", "FusedMatMul", "Gemm", "MatMul", "MatMulBnb4", "MatMulInteger", "MatMulNBits"}
)
#: The first input comes out in another form, and stays what it is.
PASSING = frozenset(
    {"Cast", "CastLike", "DequantizeLinear", "Expand", "Flatten", "Identity", "QuantizeLinear", "Reshape"}
    | {"Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)
#: What a constant is here, the other operand says.
ARITHMETIC = frozenset({"Add", "Div", "Max", "Mean", "Min", "Mod", "Mul", "Pow", "Sub", "Sum", "Where"})


def row_of(node: ir.Node, position: int) -> Row | None:
    """What an input of a node is, where the operator alone tells it."""
    domain = "" if node.domain in ("", "ai.onnx") else f"{node.domain}::"
    row = _TABLE_OF.get(f"{domain}{node.op_type}", {}).get(position)
    return None if row is None else Row(row.kind, row.reason.format(op=node.op_type))
