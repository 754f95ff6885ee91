"""ONNX Runtime's own operators that are not differentiated; those that can be said with others are decomposed before.

The list is that of the operators of ONNX Runtime 1.32.
"""

from edgeopt.autodiff.registry import refuse


def _refuse(reason: str, operators: str, alternative: str = "") -> None:
    refuse(reason, *(f"com.microsoft::{name}" for name in operators.split()), alternative=alternative)


_refuse(
    "it computes with integers, rounded away from what could be differentiated",
    """DynamicQuantizeLSTM DynamicQuantizeMatMul MatMulInteger16 MatMulIntegerToFloat MulInteger NhwcMaxPool QAttention
    QEmbedLayerNormalization QGemm QLinearAdd QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool
    QLinearLeakyRelu QLinearMul QLinearReduceMean QLinearSigmoid QLinearSoftmax QLinearWhere QMoE QOrderedAttention
    QOrderedGelu QOrderedLayerNormalization QOrderedLongformerAttention QOrderedMatMul QuantizeWithOrder
    DequantizeWithOrder ReduceSumInteger""",
    "start from the model before quantization, or from one in QuantizeLinear/DequantizeLinear (QDQ) form",
)
_refuse(
    "its numbers are packed in a format that other operators cannot read",
    """DequantizeBFP QuantizeBFP GatherBlockQuantized GemmFloat8 MatMulBlockQuantizedFp4Weight
    MatMulBlockQuantizedFp8Weight MatMulFpQ4 MatMulNBitsMlp MatMulNBitsQLoRA MatMulNBitsQkv MatMulPacked""",
    "start from the model before quantization, or from one with MatMulNBits",
)
_refuse(
    "it searches for an output, step by step",
    "BeamSearch GreedySearch NGramRepeatBlock Sampling SpeculativePrefixCommit WhisperBeamSearch BifurcationDetector",
    "train the model that it calls",
)
_refuse(
    "it is made for decoding one token after the other",
    """DecoderAttention DecoderMaskedMultiHeadAttention DecoderMaskedSelfAttention PagedAttention SparsePagedAttention
    ConvStateReplay GatedDeltaNetStateReplay Mamba2Verify""",
    "export the model without a cache",
)
_refuse(
    "it packs the sequences of a batch one behind the other",
    """GatherPacked MoEPacked PackedAttention PackedMultiHeadAttention PackedSparseAttentionIndexer
    PackedSparseAttentionIndexerMerge RemovePadding RestorePadding VarlenCausalConvWithState VarlenNGramHashMapping""",
    "optimize the model without the packing mode",
)
_refuse(
    "it attends to a choice of keys that only its kernel knows",
    "DynamicSparseAttention LongformerAttention SparseAttention SparseAttentionIndexer",
    "export the model with dense attention",
)
_refuse(
    "it sends each token to a few experts, in the layout of its kernel",
    "MoE MoEGroupRouter RouterGateUpProj",
    "export the experts as matrix products",
)
_refuse(
    "it is a fusion made for one family of models",
    """AttnLSTM BranchwiseRMSNorm EngramGate GatedDeltaNet GatedRMSNorm GemmaRotaryEmbedding HyperConnectionLowRankMix
    HyperConnectionPostMix HyperConnectionPreMix LinearAttention LinearAttentionGate MRotaryEmbedding NGramHashMapping
    RMSNormRotary WordConvEmbedding""",
    "start from the model before ONNX Runtime's optimizer has seen it",
)
_refuse("it transforms to frequencies in a layout of its own", "Irfft Rfft", "write it with DFT")
_refuse(
    "no rule has been written for it",
    """CropAndResize DynamicTimeWarping MaxpoolWithMask SampleOp SparseToDenseMatMul UnfoldTensor""",
)
_refuse(
    "which elements are the distinct ones changes with their values",
    "Unique",
    "gather the elements by the indices that Unique gives",
)
_refuse(
    "it is part of somebody else's training step", "BitmaskBiasDropout BitmaskDropout", "start from an inference model"
)
_refuse("it holds what was compiled for one accelerator", "EPContext Snpe", "start from the model before compilation")

_BLOCKED = "AveragePool Conv GlobalAveragePool GlobalMaxPool MaxPool ReorderInput ReorderOutput Upsample"
refuse(
    "its tensors have the memory layout of the machine that it was optimized for",
    *(f"com.microsoft.nchwc::{name}" for name in _BLOCKED.split()),
    alternative='optimize the model up to the level "extended", which is the same for all machines',
)
