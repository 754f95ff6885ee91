"""Modules that read tokens, made from configurations of transformers, without dropout."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from workloads.models.lora import add_lora
from workloads.text import CLASSES, LENGTH, PIECES, WORDS

__all__ = ["bert_tiny", "bert_tiny_lora", "gpt2_tiny", "minilm", "minilm_lora"]

RANK = 8


class Logits(nn.Module):
    """A model of transformers that takes tokens, all of them of a sequence, and gives its logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of (batch, length) tokens."""
        logits: torch.Tensor = self.model(tokens).logits
        return logits


def _bert(layers: int, width: int, heads: int, inner: int) -> nn.Module:
    import transformers

    config = transformers.BertConfig(
        vocab_size=WORDS,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=CLASSES,
    )
    return Logits(transformers.BertForSequenceClassification(config))


def _adapted(module: nn.Module) -> nn.Module:
    add_lora(module, ("query", "value"), rank=RANK)
    return module


def bert_tiny() -> nn.Module:
    """Two layers of 128 (Turc et al., 2019)."""
    return _bert(2, 128, 2, 512)


def bert_tiny_lora() -> nn.Module:
    """BERT-tiny with low-rank updates of queries and values."""
    return _adapted(bert_tiny())


def minilm() -> nn.Module:
    """Six layers of 384 (Wang et al., 2020)."""
    return _bert(6, 384, 12, 1536)


def minilm_lora() -> nn.Module:
    """MiniLM-L6 with low-rank updates of queries and values."""
    return _adapted(minilm())


def gpt2_tiny() -> nn.Module:
    """A GPT-2 of two layers of 128 whose head is its embedding."""
    import transformers

    off: dict[str, Any] = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    config = transformers.GPT2Config(
        vocab_size=PIECES, n_positions=LENGTH, n_embd=128, n_layer=2, n_head=2, use_cache=False, **off
    )
    return Logits(transformers.GPT2LMHeadModel(config))
