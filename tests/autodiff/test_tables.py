"""Every operator is in exactly one table: it has a rule, is said with others, has no derivative, or is refused."""

from __future__ import annotations

from collections.abc import Mapping

import onnx.defs
import pytest

from edgeopt.autodiff import REFUSED, RULES, ZERO_DERIVATIVE
from edgeopt.canonical import DECOMPOSITIONS
from edgeopt.canonical.registry import ADAPTERS
from edgeopt.tracing import OPSET

TABLES: Mapping[str, Mapping[str, object]] = {
    "rules": RULES,
    "decompositions": DECOMPOSITIONS,
    "zero": ZERO_DERIVATIVE,
    "refused": REFUSED,
}

# Operators that files hold which ONNX Runtime's optimizers, or tools that call them, have written.
_MICROSOFT = """
    Attention BeamSearch BiasAdd BiasDropout BiasGelu BiasSoftmax BiasSplitGelu BifurcationDetector BitmaskBiasDropout
    BitmaskDropout CDist ComplexMul ComplexMulConj ConvTransposeWithDynamicPads CropAndResize DecoderAttention
    DecoderMaskedMultiHeadAttention DecoderMaskedSelfAttention DequantizeLinear DynamicQuantizeLSTM
    DynamicQuantizeMatMul EPContext EmbedLayerNormalization ExpandDims FastGelu FusedConv FusedGemm FusedMatMul
    FusedMatMulActivation GatedRelativePositionBias GatherBlockQuantized GatherND Gelu GemmFastGelu GemmFloat8
    GemmaRotaryEmbedding GreedySearch GridSample GroupNorm GroupQueryAttention Inverse Irfft IsAllFinite
    LongformerAttention MatMulBnb4 MatMulFpQ4 MatMulInteger16 MatMulIntegerToFloat MatMulNBits MaxpoolWithMask MoE
    MulInteger MultiHeadAttention MurmurHash3 NGramRepeatBlock NhwcConv NhwcFusedConv NhwcMaxPool PackedAttention
    PackedMultiHeadAttention Pad PagedAttention QAttention QEmbedLayerNormalization QGemm QLinearAdd
    QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul
    QLinearReduceMean QLinearSigmoid QLinearSoftmax QLinearWhere QMoE QOrderedAttention QOrderedGelu
    QOrderedLayerNormalization QOrderedLongformerAttention QOrderedMatMul QuantizeLinear QuickGelu Range
    ReduceSumInteger RelativePositionBias RemovePadding RestorePadding Rfft RotaryEmbedding Sampling
    SimplifiedLayerNormalization SkipGroupNorm SkipLayerNormalization SkipSimplifiedLayerNormalization SparseAttention
    SparseToDenseMatMul SwiGLU Tokenizer TorchEmbedding TransposeMatMul Trilu UnfoldTensor Unique WhisperBeamSearch
    WordConvEmbedding
"""


def known_operators() -> list[str]:
    """By the names that the tables use."""
    names = set()
    for schema in onnx.defs.get_all_schemas_with_history():
        names.add(f"{schema.domain}::{schema.name}" if schema.domain else schema.name)
    return sorted(names) + [f"com.microsoft::{name}" for name in _MICROSOFT.split()]


def test_every_operator_is_in_exactly_one_table() -> None:
    """One that is only an older name of another has to have an adapter instead."""
    missing, several = [], []
    for name in known_operators():
        tables = [title for title, table in TABLES.items() if name in table]
        renamed = name in ADAPTERS and onnx.defs.get_schema(name, OPSET).deprecated
        if not tables and not renamed:
            missing.append(name)
        if len(tables) > 1:
            several.append((name, tables))
    assert not missing, f"no table knows {', '.join(missing)}"
    assert not several


def test_tables_hold_operators_that_exist() -> None:
    """A misspelt name would be of no use to anybody. What is rewritten or refused may be newer than the onnx here."""
    entries = {name for table in (RULES, ZERO_DERIVATIVE) for name in table if "::" not in name}
    assert entries <= set(known_operators())


@pytest.mark.parametrize("name", [*REFUSED, *ZERO_DERIVATIVE])
def test_a_reason_can_be_read_in_a_sentence(name: str) -> None:
    texts = [REFUSED[name].reason, REFUSED[name].alternative] if name in REFUSED else [ZERO_DERIVATIVE[name]]
    assert texts[0]
    for text in texts:
        assert not text.endswith(".")
        assert text == text.strip()


def test_what_is_newer_than_the_target_is_said_with_others_or_refused() -> None:
    for name in known_operators():
        if "::" not in name and not onnx.defs.has(name, OPSET, ""):
            assert name in DECOMPOSITIONS or name in REFUSED or name in ZERO_DERIVATIVE, name
