"""InstanceNorm with running statistics, which torch's own translation leaves where they are and does not read."""

from __future__ import annotations

from typing import Any

import torch

from edgeopt_exporters.pytorch.translations.rewriting import Rewrite

__all__ = ["REWRITES"]


def _instance_norm(
    input: torch.Tensor,  # noqa: A002  # as in the schema
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
) -> Any:
    """`aten::instance_norm`. The running ones move by the mean over the batch of each sample's (unbiased) ones."""
    if running_mean is None or running_var is None:
        return NotImplemented
    if not use_input_stats:
        return torch.batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps, False)
    rows = input.detach().flatten(2)
    mean = rows.mean(2, keepdim=True)
    variance = (rows - mean).square().sum(2) / (rows.shape[2] - 1)
    running_mean.copy_(running_mean * (1.0 - momentum) + mean.squeeze(2).mean(0) * momentum)
    running_var.copy_(running_var * (1.0 - momentum) + variance.mean(0) * momentum)
    return torch.instance_norm(input, weight, bias, None, None, True, momentum, eps, False)


REWRITES: dict[Any, Rewrite] = {torch.ops.aten.instance_norm.default: _instance_norm}
