"""The columns of the report in their order."""

from __future__ import annotations

from peers.base import Peer

__all__ = ["ANCHOR", "PEAKS", "PEERS"]

# Takes part in every match: what others took is known relative to it, even if they were measured on another day.
ANCHOR = "torch"

_ALL = (
    Peer("edgeopt", "ours", "", "plain", ours=True),
    Peer("edgeopt-native", "ours", "", "native", ours=True, artifact="edgeopt", needs="edgeopt_native"),
    Peer("edgeopt-8bit", "ours", "", "plain-8bit", ours=True, narrow=True),
    Peer(
        "edgeopt-native-8bit",
        "ours",
        "",
        "native-8bit",
        ours=True,
        narrow=True,
        artifact="edgeopt-8bit",
        needs="edgeopt_native",
    ),
    Peer("torch", "pytorch", "torch"),
    Peer("torch-foreach", "pytorch", "torch", "foreach"),
    Peer("torch-fused", "pytorch", "torch", "fused"),
    Peer("torch-compile", "pytorch", "torch", "compile", compiles=True),
    Peer(
        "ort-training",
        "ort_training",
        "ort-training",
        source="logits",
        remark="weights decay after the update, and epsilon is added before the correction of the bias.",
    ),
    Peer("litert", "litert", "litert", remark="gradients written by hand, of its built-in operators."),
    Peer("mnn", "mnn", "mnn", remark="Adam without decay of weights."),
    Peer(
        "executorch",
        "executorch",
        "executorch",
        remark="its wheel's portable kernels; it has no AdamW, PyTorch's runs on its weights.",
    ),
    Peer("onnxsim", "onnx_sim", "onnxsim", source="loss", remark="Adam: it has no decay of weights."),
    Peer("onnx-ad", "onnx_ad", "onnx-ad", source="loss", remark="it has no optimizer: AdamW is numpy's."),
    Peer("bitsandbytes", "narrow", "torch", "bitsandbytes"),
    Peer("bitsandbytes-8bit", "narrow", "torch", "bitsandbytes-8bit", narrow=True),
    Peer("torchao-8bit", "narrow", "torch", "torchao-8bit", narrow=True, compiles=True),
    Peer("torchao-4bit", "narrow", "torch", "torchao-4bit", narrow=True, compiles=True),
)

PEERS: dict[str, Peer] = {peer.name: peer for peer in _ALL}

# They take part in every match too, but are no columns.
PEAKS: dict[str, Peer] = {
    peer.name: peer
    for peer in (Peer("peak-gemm", "peaks", "torch", "gemm"), Peer("peak-copy", "peaks", "torch", "copy"))
}
