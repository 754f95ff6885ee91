"""A captured program run as it is, at sizes for which torch does not vouch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind

__all__ = ["agree"]

_LOOSER = 2.0**14


def agree(one: torch.export.ExportedProgram, other: torch.export.ExportedProgram, tensors: Sequence[Any]) -> bool:
    """Whether two programs of one module compute the same of these inputs, but for rounding.

    Programs that torch cannot run, such as those with operators that are only placeholders for ONNX, do not agree.
    """
    try:
        results, others = _run(one, tensors), _run(other, tensors)
    except (LookupError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return False
    return len(results) == len(others) and all(map(_close, results, others))


def _run(program: torch.export.ExportedProgram, tensors: Sequence[Any]) -> list[torch.Tensor]:
    given = iter(tensors)
    held = {**program.state_dict, **program.constants}
    values = [
        next(given) if spec.kind is InputKind.USER_INPUT else held[str(spec.target)]
        for spec in program.graph_signature.input_specs
    ]
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        # On copies, since the program may write into them.
        copies = [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in values]
        found: Any = torch.fx.Interpreter(program.graph_module).run(*copies)
    return [value for value in found if isinstance(value, torch.Tensor)]


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    scale = float(one.abs().nan_to_num().max()) if one.numel() else 0.0
    tolerance = _LOOSER * torch.finfo(one.dtype).eps * scale
    return torch.allclose(one, other, rtol=0.0, atol=tolerance, equal_nan=True)
