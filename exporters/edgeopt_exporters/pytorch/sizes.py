"""Examples of other sizes."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from edgeopt_exporters.pytorch.inputs import Examples

__all__ = ["resized"]


def resized(examples: Examples, sizes: Mapping[str, int]) -> tuple[torch.Tensor, ...]:
    """The example tensors with other sizes: cut along each named dimension, or repeated from its start.

    Args:
        examples: What the module was exported with.
        sizes: The size of each symbolic dimension that shall have another, by name.
    """
    return tuple(
        _resized(tensor, {axis: sizes[symbol] for axis, symbol in own.items() if symbol in sizes})
        for tensor, own in zip(examples.tensors, examples.dimensions, strict=True)
    )


def _resized(tensor: torch.Tensor, sizes: Mapping[int, int]) -> torch.Tensor:
    for axis, size in sizes.items():
        taken = torch.arange(size, device=tensor.device) % tensor.shape[axis]
        tensor = tensor.index_select(axis, taken)
    return tensor
