"""Weights of a bundle back in a module of PyTorch."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from edgeopt_runtime import WeightReport
from edgeopt_runtime.transfer import Tensor, matched
from edgeopt_runtime.weight_sources import weights_of

__all__ = ["load_into"]


def load_into(
    module: torch.nn.Module,
    source: Any,
    *,
    strict: bool = True,
    view: Literal["trained", "evaluated"] = "evaluated",
) -> WeightReport:
    """Copy parameters and buffers into a module, in place: on its device, for whoever holds its tensors.

    Names match as they are, or without what wrappers put into them on either side (``module.``, ``_orig_mod.``); a
    tensor with several names needs to be found under one. Values are converted to the module's types where all of them
    survive.

    Args:
        module: Its `state_dict` says what is to be found.
        source: A session; a bundle, its path or its bytes; or a safetensors file. Arrays by name are taken too.
        strict: Whether something missing, unexpected or of another shape or dtype is an error. Otherwise what fits is
            copied.
        view: Of an optimizer that evaluates averages, those, or the weights that it trains; see
            `TrainingSession.parameters`.

    Returns:
        What was copied, and all that did not fit.

    Raises:
        WeightsError: Something did not fit, and ``strict`` was asked for. All of it is listed, nothing is changed.
        StateError: The source cannot be read.
        BundleError: It is a bundle that cannot be used.
    """
    given = weights_of(source, view)
    tensors: dict[str, torch.Tensor] = {
        name: value for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)
    }
    # The first name of each tensor stands for all of its names.
    firsts: dict[tuple[Any, ...], str] = {}
    aliases = {
        name: first
        for name, value in tensors.items()
        if (first := firsts.setdefault(_place(name, value), name)) != name
    }
    wanted = {
        name: Tensor(str(value.dtype).removeprefix("torch."), tuple(value.shape))
        for name, value in tensors.items()
        if name not in aliases
    }
    arrays, report = matched(wanted, aliases, given, needed=wanted, strict=strict)
    with torch.no_grad():
        for name, array in arrays.items():
            # A copy, since arrays that only read a file cannot be written.
            value = np.array(array, order="C")
            if tensors[name].dtype == torch.bfloat16:
                tensors[name].copy_(torch.from_numpy(value.view(np.int16)).view(torch.bfloat16))
            else:
                tensors[name].copy_(torch.from_numpy(value))
    return report


def _place(name: str, tensor: torch.Tensor) -> tuple[Any, ...]:
    """The same for tensors in the same memory; what has none is like no other."""
    if not tensor.numel() or tensor.is_meta:
        return (name,)
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype
