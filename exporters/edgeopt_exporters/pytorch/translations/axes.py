"""Names and numbers of axes, where PyTorch takes more than ONNX."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from edgeopt_exporters.pytorch.translations.rewriting import Rewrite

__all__ = ["REWRITES"]


def _squeeze(self: torch.Tensor, dim: Sequence[int]) -> torch.Tensor:
    """`aten::squeeze.dims`: axes of another length than one stay."""
    kept = [size for axis, size in enumerate(self.shape) if size != 1 or axis not in [at % self.ndim for at in dim]]
    return self.reshape(kept)


def _squeeze_one(self: torch.Tensor, dim: int) -> Any:
    """`aten::squeeze.dim`."""
    return _squeeze(self, [dim]) if self.ndim else self.clone()


def _einsum(equation: str, tensors: Sequence[torch.Tensor]) -> Any:
    """`aten::einsum` with an ellipsis, which may stand for another number of axes in each operand."""
    if "..." not in equation:
        return NotImplemented
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    operands = inputs.split(",")
    named = [operand.replace("...", "") for operand in operands]
    hidden = [
        tensor.ndim - len(names) if "..." in operand else 0
        for operand, names, tensor in zip(operands, named, tensors, strict=True)
    ]
    unused = [letter for letter in string.ascii_letters if letter not in equation]
    letters = "".join(unused[: max(hidden)])
    if not arrow:
        counts = Counter("".join(named))
        output = "..." + "".join(sorted(name for name, count in counts.items() if count == 1))
    spelled = [
        operand.replace("...", letters[len(letters) - count :]) for operand, count in zip(operands, hidden, strict=True)
    ]
    return torch.einsum(f"{','.join(spelled)}->{output.replace('...', letters)}", list(tensors))


REWRITES: dict[Any, Rewrite] = {
    torch.ops.aten.einsum.default: _einsum,
    torch.ops.aten.squeeze.dim: _squeeze_one,
    torch.ops.aten.squeeze.dims: _squeeze,
}
