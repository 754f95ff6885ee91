"""Translations of PyTorch's operators to ONNX where those of torch's own exporter are missing or say something else.

One module a family; each has a table `TRANSLATIONS` from an operator to a function that is called with the operator's
arguments, tensors as values of onnxscript, and records nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType, ModuleType
from typing import Any

from edgeopt_exporters.pytorch.translations import attention, batch_norm, convolution, recurrent, stopped

__all__ = ["TRANSLATIONS"]

_FAMILIES: tuple[ModuleType, ...] = (attention, batch_norm, convolution, recurrent, stopped)

TRANSLATIONS: MappingProxyType[Any, Callable[..., Any]] = MappingProxyType(
    {operator: translation for family in _FAMILIES for operator, translation in family.TRANSLATIONS.items()}
)
