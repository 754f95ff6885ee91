"""Translations of PyTorch's operators to ONNX where those of torch's own exporter are missing or say something else.

One module a family, with up to three tables by operator or function:

- `TRANSLATIONS`: functions that are called with the operator's arguments, tensors as values of onnxscript, and record
  ONNX nodes.
- `REWRITES`: functions that say an operator with others of PyTorch, in the captured program; see `rewriting`.
- `FUNCTIONS`: the same for what torch cannot capture, called in place of a function while it is captured.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import MappingProxyType
from typing import Any, TypeAlias

__all__ = ["FUNCTIONS", "REWRITES", "TRANSLATIONS"]

_FAMILIES = (
    "attention",
    "axes",
    "batch_norm",
    "convolution",
    "cumulative",
    "distances",
    "dropout",
    "elementwise",
    "embedding_bag",
    "extrema",
    "fake_quantize",
    "instance_norm",
    "losses",
    "numbers",
    "pooling",
    "products",
    "rectifiers",
    "recurrent",
    "scatter",
    "singular_points",
    "stopped",
)

_Table: TypeAlias = "MappingProxyType[Any, Callable[..., Any]]"


def _joined(name: str) -> _Table:
    tables = [getattr(import_module(f"{__name__}.{family}"), name, {}) for family in _FAMILIES]
    return MappingProxyType({operator: function for table in tables for operator, function in table.items()})


TRANSLATIONS = _joined("TRANSLATIONS")
REWRITES = _joined("REWRITES")
FUNCTIONS = _joined("FUNCTIONS")
