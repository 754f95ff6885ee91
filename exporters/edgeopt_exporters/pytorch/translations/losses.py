"""Losses inside of forward: torch's translations drop label smoothing, and take probabilities for labels."""

from __future__ import annotations

from typing import Any

import torch

from edgeopt_exporters.pytorch.translations.rewriting import Rewrite

__all__ = ["REWRITES"]

_NONE, _MEAN = 0, 1


def _reduced(losses: torch.Tensor, reduction: int, divisor: Any) -> torch.Tensor:
    if reduction == _NONE:
        return losses
    return losses.sum() / divisor if reduction == _MEAN else losses.sum()


def _along_classes(weight: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """A weight for each class, to meet scores of shape (N, C, …)."""
    return weight.reshape([-1] + [1] * (scores.ndim - 2))


def _cross_entropy(
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = _MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """`aten::cross_entropy_loss` of scores (N, C, …) or (C,), against labels or probabilities."""
    logarithms = torch.log_softmax(self, 1 if self.ndim > 1 else 0)
    if not target.is_floating_point():
        return _negative_log_likelihood(logarithms, target, weight, reduction, ignore_index, label_smoothing)
    axis = 1 if self.ndim > 1 else 0
    classes = self.shape[axis]
    if label_smoothing > 0.0:
        target = target * (1.0 - label_smoothing) + label_smoothing / classes
    if weight is not None:
        logarithms = logarithms * (_along_classes(weight, self) if self.ndim > 1 else weight)
    losses = -(logarithms * target).sum(axis)
    return _reduced(losses, reduction, self.numel() // classes)


def _negative_log_likelihood(
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = _MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """`aten::nll_loss_nd`: of logarithms of probabilities (N, C, …) or (C,); the mean is that of what counts."""
    if self.ndim == 1:
        losses = _negative_log_likelihood(
            self.unsqueeze(0), target.reshape(1), weight, reduction, ignore_index, label_smoothing
        )
        return losses.reshape(target.shape) if reduction == _NONE else losses
    counts = target != ignore_index
    labels = torch.where(counts, target, torch.zeros_like(target))
    share = counts.to(self.dtype)
    if weight is not None:
        share = share * weight[labels]
    losses = -self.gather(1, labels.unsqueeze(1)).squeeze(1) * share
    # A score of -inf under a label that does not count is not 0 · inf.
    losses = torch.where(counts, losses, torch.zeros_like(losses))
    if label_smoothing > 0.0:
        everywhere = self if weight is None else self * _along_classes(weight, self)
        spread = torch.where(counts, -everywhere.sum(1), torch.zeros_like(losses))
        losses = losses * (1.0 - label_smoothing) + spread * (label_smoothing / self.shape[1])
    return _reduced(losses, reduction, share.sum())


def _soft_margin(self: torch.Tensor, target: torch.Tensor, reduction: int = _MEAN) -> torch.Tensor:
    """`aten::soft_margin_loss`, also where the exponential vanishes beside one."""
    losses = -torch.nn.functional.logsigmoid(self * target)
    return _reduced(losses, reduction, losses.numel())


REWRITES: dict[Any, Rewrite] = {
    torch.ops.aten.soft_margin_loss.default: _soft_margin,
    torch.ops.aten.cross_entropy_loss.default: _cross_entropy,
    torch.ops.aten.nll_loss_nd.default: _negative_log_likelihood,
    torch.ops.aten.nll_loss.default: _negative_log_likelihood,
    torch.ops.aten.nll_loss2d.default: _negative_log_likelihood,
}
