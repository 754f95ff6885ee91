"""temporary"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

__all__ = ["preserved"]


@contextlib.contextmanager
def preserved(module: torch.nn.Module) -> Iterator[None]:
    """temporary"""
    saved = {
        name: (t, t.detach().clone(), t.requires_grad, t.grad)
        for name, t in [*module.named_parameters(), *module.named_buffers()]
    }
    try:
        yield
    finally:
        with torch.no_grad():
            for t, value, r, g in saved.values():
                t.detach().copy_(value)
                t.requires_grad_(r) if t.is_floating_point() else None
                t.grad = g
