"""Translations of PyTorch's operators to ONNX where those of torch's own exporter are missing or say something else.

One module a family, with up to three tables by operator or function:

- `TRANSLATIONS`: functions that are called with the operator's arguments, tensors as values of onnxscript, and record
  ONNX nodes.
- `REWRITES`: functions that say an operator with others of PyTorch, in the captured program; see `rewriting`.
- `FUNCTIONS`: the same for what torch cannot capture, called in place of a function while it is captured.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType, ModuleType
from typing import Any, TypeAlias

from edgeopt_exporters.pytorch.translations import (
    attention,
    axes,
    batch_norm,
    convolution,
    cumulative,
    distances,
    elementwise,
    embedding_bag,
    extrema,
    fake_quantize,
    instance_norm,
    losses,
    numbers,
    pooling,
    products,
    rectifiers,
    recurrent,
    scatter,
    singular_points,
    stopped,
)

__all__ = ["FUNCTIONS", "REWRITES", "TRANSLATIONS"]

# Every family that is imported above, in the order of the alphabet.
_FAMILIES = [module for name, module in sorted(vars().items()) if isinstance(module, ModuleType)]

_Table: TypeAlias = "MappingProxyType[Any, Callable[..., Any]]"


def _joined(name: str) -> _Table:
    tables = [getattr(family, name, {}) for family in _FAMILIES]
    return MappingProxyType({operator: function for table in tables for operator, function in table.items()})


TRANSLATIONS = _joined("TRANSLATIONS")
REWRITES = _joined("REWRITES")
FUNCTIONS = _joined("FUNCTIONS")
