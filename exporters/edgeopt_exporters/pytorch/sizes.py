"""temporary"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from edgeopt_exporters.pytorch.inputs import Examples

__all__ = ["resized"]


def resized(examples: Examples, sizes: Mapping[str, int]) -> tuple[torch.Tensor, ...]:
    """temporary"""
    out = []
    for t, own in zip(examples.tensors, examples.dimensions, strict=True):
        for axis, name in own.items():
            if name in sizes:
                t = t.index_select(axis, torch.arange(sizes[name]) % t.shape[axis])
        out.append(t)
    return tuple(out)
