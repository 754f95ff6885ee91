"""Operators along an axis of a tensor that has none: PyTorch takes 0 and -1 there, ONNX takes nothing."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from edgeopt_exporters.pytorch.translations.rewriting import Rewrite

__all__ = ["OF_SCALARS"]

_aten = torch.ops.aten


def _as_vector(operator: Any) -> Rewrite:
    """The same for a vector of one element."""

    def rewrite(self: torch.Tensor, **settings: Any) -> Any:
        tensors = {name: value for name, value in settings.items() if isinstance(value, torch.Tensor)}
        vectors = {name: value.reshape(1) for name, value in tensors.items() if value.ndim == 0}
        results = operator(self.reshape(1), **{**settings, **vectors})
        if isinstance(results, torch.Tensor):
            return results.reshape(())
        return tuple(result.reshape(()) for result in results)

    names = [argument.name for argument in operator._schema.arguments]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    # Arguments are given by the names of the signature, the schema's.
    rewrite.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]  # read by inspect
    return rewrite


_ALONG_AN_AXIS = (
    *(_aten.sum.dim_IntList, _aten.mean.dim, _aten.prod.dim_int, _aten.amax.default, _aten.amin.default),
    *(_aten.logsumexp.default, _aten.var.correction, _aten.std.correction, _aten.nansum.default),
    *(_aten.max.dim, _aten.min.dim, _aten.argmax.default, _aten.argmin.default),
    *(_aten.topk.default, _aten.sort.default, _aten.sort.stable),
    *(_aten.cumsum.default, _aten.cumprod.default),
    *(_aten.logcumsumexp.default, _aten.linalg_vector_norm.default),
    *(_aten.gather.default, _aten.scatter.src, _aten.scatter.value, _aten.scatter_add.default),
    *(_aten.scatter.reduce, _aten.scatter.value_reduce, _aten.index_reduce.default),
    *(_aten.scatter_reduce.two, _aten.all.dim, _aten.any.dim, _aten.count_nonzero.dim_IntList),
)


def _chosen(self: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The only element, and its index."""
    return self.clone(), torch.zeros((), dtype=torch.int64)


#: What stands for an operator if its first argument has no axis.
OF_SCALARS: dict[Any, Rewrite] = {
    **{operator: _as_vector(operator) for operator in _ALONG_AN_AXIS},
    _aten.kthvalue.default: _chosen,
    _aten.median.dim: _chosen,
    _aten.cummax.default: _chosen,
    _aten.cummin.default: _chosen,
}
