"""Sums with products: factors that are no powers of two stay what they are, where attributes of Gemm are float32."""

from __future__ import annotations

from typing import Any

import torch

from edgeopt_exporters.pytorch.translations.rewriting import Rewrite

__all__ = ["REWRITES"]


def _sum(self: torch.Tensor, product: torch.Tensor, beta: Any, alpha: Any) -> torch.Tensor:
    """beta self + alpha product; without the first term, NaN and all, where beta is 0."""
    scaled = product if alpha == 1 else product * alpha
    if beta == 0:
        return scaled
    return (self if beta == 1 else self * beta) + scaled


def _addmm(self: Any, mat1: Any, mat2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """`aten::addmm`; without factors it stays one product."""
    return NotImplemented if beta == alpha == 1 else _sum(self, mat1 @ mat2, beta, alpha)


def _addmv(self: Any, mat: Any, vec: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """`aten::addmv`."""
    return _sum(self, mat @ vec, beta, alpha)


def _addr(self: Any, vec1: Any, vec2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """`aten::addr`."""
    return _sum(self, vec1.unsqueeze(1) * vec2.unsqueeze(0), beta, alpha)


def _addbmm(self: Any, batch1: Any, batch2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """`aten::addbmm`."""
    return _sum(self, (batch1 @ batch2).sum(0), beta, alpha)


def _baddbmm(self: Any, batch1: Any, batch2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """`aten::baddbmm`."""
    return _sum(self, batch1 @ batch2, beta, alpha)


def _addcmul(self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
    """`aten::addcmul`."""
    return _sum(self, tensor1 * tensor2, 1, value)


def _addcdiv(self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
    """`aten::addcdiv`."""
    return _sum(self, tensor1 / tensor2, 1, value)


_aten = torch.ops.aten

REWRITES: dict[Any, Rewrite] = {
    _aten.addmm.default: _addmm,
    _aten.addmv.default: _addmv,
    _aten.addr.default: _addr,
    _aten.addbmm.default: _addbmm,
    _aten.baddbmm.default: _baddbmm,
    _aten.addcmul.default: _addcmul,
    _aten.addcdiv.default: _addcdiv,
}
