"""PyTorch whose random numbers are the lower quartile of their distribution, so that a module can be compared."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from edgeopt_exporters.verification.quartile import NORMAL_QUARTILE, QUARTILE

__all__ = ["Quartiles"]

_aten = torch.ops.aten


def _bernoulli(probability: Any) -> Any:
    return probability > QUARTILE


def _native_dropout(x: torch.Tensor, p: float, train: bool | None = True) -> tuple[torch.Tensor, torch.Tensor]:
    kept = bool(1.0 - p > QUARTILE) or not train
    mask = torch.full_like(x, kept, dtype=torch.bool)
    return x * (mask.to(x.dtype) / (1.0 - p) if train else 1.0), mask


def _between(low: float, high: float) -> float:
    return low + QUARTILE * (high - low)


# What fills a tensor in place: its value from the arguments behind the tensor.
_FILLS: Mapping[Any, Callable[..., Any]] = {
    _aten.bernoulli_.float: lambda p=0.5: float(_bernoulli(p)),
    _aten.normal_.default: lambda mean=0.0, std=1.0: mean + std * NORMAL_QUARTILE,
    _aten.uniform_.default: lambda low=0.0, high=1.0: _between(low, high),
}
# What makes a tensor like another, or of a shape; the value that fills it.
_LIKE: Mapping[Any, float] = {
    _aten.rand_like.default: QUARTILE,
    _aten.randn_like.default: NORMAL_QUARTILE,
}
_OF_SHAPE: Mapping[Any, float] = {
    _aten.rand.default: QUARTILE,
    _aten.randn.default: NORMAL_QUARTILE,
}
_OTHERS: Mapping[Any, Callable[..., Any]] = {
    _aten.bernoulli.default: lambda x: _bernoulli(x).to(x.dtype),
    _aten.bernoulli.p: lambda x, p: torch.full_like(x, float(_bernoulli(p))),
    _aten.bernoulli_.Tensor: lambda x, p: x.copy_(_bernoulli(p)),
    _aten.native_dropout.default: _native_dropout,
    _aten.normal.Tensor_Tensor: lambda mean, std: mean + std * NORMAL_QUARTILE,
    _aten.normal.Tensor_float: lambda mean, std=1.0: mean + std * NORMAL_QUARTILE,
    _aten.normal.float_Tensor: lambda mean, std: mean + std * NORMAL_QUARTILE,
}


class Quartiles(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves its own untyped
    """Within it, every operator of these draws the same.

    Attributes:
        unknown: Operators that drew other numbers, so that what was computed cannot be compared.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.unknown: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = {key: value for key, value in (kwargs or {}).items() if key != "generator"}
        if func in _FILLS:
            return args[0].fill_(_FILLS[func](*args[1:], **named))
        if func in _LIKE:
            return torch.full_like(args[0], _LIKE[func], **named)
        if func in _OF_SHAPE:
            return torch.full(args[0], _OF_SHAPE[func], **named)
        if func in _OTHERS:
            return _OTHERS[func](*args, **named)
        if torch.Tag.nondeterministic_seeded in func.tags and _drops(func, args, named):
            self.unknown.add(str(func))
        return func(*args, **(kwargs or {}))


def _drops(func: Any, args: Sequence[Any], named: Mapping[str, Any]) -> bool:
    """Whether an operator draws numbers. Fused attention is marked as random, but is so only with dropout."""
    for parameter, value in itertools.zip_longest(func._schema.arguments, args):
        if parameter is not None and parameter.name == "dropout_p":
            given = value if value is not None else parameter.default_value
            return bool(named.get("dropout_p", given) != 0.0)
    return True
