"""PyTorch modules in."""

from edgeopt_exporters.pytorch.exporter import from_torch

__all__ = ["from_torch"]
