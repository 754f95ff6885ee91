"""Keyword spotting: a recurrent layer over a second of filter-bank features."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from workloads.base import Batch, Workload, generator

if TYPE_CHECKING:
    from torch import nn

BATCH, FRAMES, BANDS, UNITS, CLASSES = 16, 100, 40, 128, 12

_PATTERNS = generator(5).standard_normal((CLASSES, BANDS))


def _utterances(step: int) -> Batch:
    """A pattern of bands for each class, under noise."""
    random = generator(6, step)
    labels = random.integers(0, CLASSES, BATCH)
    noisy = 0.3 * _PATTERNS[labels][:, None] + random.standard_normal((BATCH, FRAMES, BANDS))
    return noisy.astype(np.float32), labels


def _model(cell: str) -> Callable[[], nn.Module]:
    return lambda: import_module("workloads.models.speech").Keywords(cell)


# Four gates; the backward pass costs twice the forward pass, but features need no gradient.
_LSTM_FLOPS = 2 * BATCH * FRAMES * 4 * UNITS * (3 * (BANDS + UNITS) - BANDS)

WORKLOADS = (
    Workload("gru", "GRU, 100 frames", _model("GRU"), _utterances),
    Workload("lstm", "LSTM, 100 frames", _model("LSTM"), _utterances, uncounted_flops=_LSTM_FLOPS),
)
