"""Text: encoders that classify, fully trained and through LoRA, and a decoder that predicts the next token."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from workloads.base import Batch, Workload, generator

if TYPE_CHECKING:
    from torch import nn

BATCH, LENGTH = 8, 128
CLASSES = 4
# BERT's vocabulary; GPT-2's would make a tiny model of it into one large product with the embedding.
WORDS, PIECES = 30522, 8192


def _sentences(step: int) -> Batch:
    """Random tokens, every fourth of which tells the class."""
    random = generator(3, step)
    labels = random.integers(0, CLASSES, BATCH)
    tokens = random.integers(1000, WORDS, (BATCH, LENGTH))
    tells = random.random((BATCH, LENGTH)) < 0.25
    return np.where(tells, 100 + labels[:, None], tokens).astype(np.int64), labels


def _continuations(step: int) -> Batch:
    """Random tokens, half of which are followed by the next number."""
    random = generator(4, step)
    tokens = random.integers(0, PIECES, (BATCH, LENGTH + 1))
    for place in range(1, LENGTH + 1):
        counts = random.random(BATCH) < 0.5
        tokens[:, place] = np.where(counts, (tokens[:, place - 1] + 1) % PIECES, tokens[:, place])
    return np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:])


def _model(name: str) -> Callable[[], nn.Module]:
    return lambda: getattr(import_module("workloads.models.text"), name)()


_ADAPTED = ("*.lora_*", "*classifier.*")

WORKLOADS = (
    Workload("bert-tiny", "BERT-tiny", _model("bert_tiny"), _sentences, lr=1e-4),
    Workload("bert-tiny-lora", "BERT-tiny, LoRA 8", _model("bert_tiny_lora"), _sentences, trainable=_ADAPTED),
    Workload("minilm", "MiniLM-L6", _model("minilm"), _sentences, lr=1e-4),
    Workload("minilm-lora", "MiniLM-L6, LoRA 8", _model("minilm_lora"), _sentences, trainable=_ADAPTED),
    Workload("gpt2-tiny", "GPT-2-tiny", _model("gpt2_tiny"), _continuations, lr=1e-3),
)
