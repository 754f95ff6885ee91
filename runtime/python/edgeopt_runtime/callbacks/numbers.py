"""Which of the things that `fit` reports are numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["numbers_of"]


def numbers_of(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among metrics, Python's and numpy's; arrays, such as a confusion matrix, are left out."""
    return {name: float(value) for name, value in metrics.items() if isinstance(value, (int, float, np.number))}
