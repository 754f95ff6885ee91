"""The precision that a module computes in, which need not be that of its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Precision"]

_aten = torch.ops.aten
# Kernels with constants in float32, whatever they compute in: 1/6, and 1/alpha of celu.
_WITH_SINGLE_CONSTANTS = frozenset({_aten.hardsigmoid_backward.default, _aten.elu_backward.default})
# Functions whose last digit is not the same everywhere. A float64 module may compute them of integers in float32.
_INEXACT = frozenset(
    {_aten.cos.default, _aten.exp.default, _aten.log.default, _aten.pow.Scalar, _aten.pow.Tensor_Tensor}
    | {_aten.pow.Tensor_Scalar, _aten.sin.default}
)


class Precision(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves its own untyped
    """Notes conversions to a coarser type, as of a normalisation that is always computed in float32, and the like.

    Attributes:
        epsilon: The relative spacing of the coarsest type that numbers went through; zero for none that was noted.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.epsilon = 0.0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _WITH_SINGLE_CONSTANTS and args[0].dtype is torch.float64:
            self.epsilon = max(self.epsilon, torch.finfo(torch.float32).eps)
        elif func in _INEXACT and result.is_floating_point():
            self.epsilon = max(self.epsilon, torch.finfo(result.dtype).eps)
        elif func is _aten._to_copy.default and args[0].is_floating_point() and result.is_floating_point():
            before, after = torch.finfo(args[0].dtype).eps, torch.finfo(result.dtype).eps
            if after > before:
                self.epsilon = max(self.epsilon, after)
        return result
