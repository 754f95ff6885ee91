"""What rules are given beside gradients under PyTorch: random numbers, Hutchinson's estimate, the value of the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from edgeopt.compat.ingredients import draw
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import HutchinsonDiagonal, Ingredient, LossValue, Measurement, Noise, Optimizer, Rademacher

__all__ = ["Given", "check_ingredients", "numpy_dtype", "numpy_values"]

Slots: TypeAlias = dict[str, torch.Tensor]
Groups: TypeAlias = Sequence[Mapping[str, Any]]


class Given:
    """The ingredients of one update, by the places of groups and of parameters in them.

    Args:
        groups: The optimizer's parameter groups.
        rules: The rule of each.
        seed: Of the random numbers.
        loss: What the closure returned; None if there was none.

    Raises:
        ConfigurationError: A rule needs a loss and there is none, or curvature of gradients that have no derivative.
    """

    def __init__(self, groups: Groups, rules: Sequence[Optimizer], seed: int, loss: Any) -> None:
        self._groups, self._rules, self._seed, self._loss = groups, rules, seed, loss
        self._curvatures = _curvatures(groups, rules, seed)
        needy = [rule for group, rule in zip(groups, rules, strict=True) if _shared(rule, group["params"])]
        if needy and loss is None:
            raise ConfigurationError(
                f"{type(needy[0]).__name__} needs the value of the loss: call step(closure), with a function that "
                "computes the gradients and returns the loss."
            )

    def own(self, place: int, number: int) -> Slots:
        """Those of a parameter."""
        group = self._groups[place]
        param = group["params"][number]
        made = {}
        for ordinal, (name, kind) in enumerate(_ingredients(self._rules[place], param).items()):
            if isinstance(kind, Noise):
                array = draw(kind, tuple(param.shape), self._seed, group["updates"], place, number, ordinal)
                made[name] = torch.as_tensor(array, dtype=param.dtype, device=param.device)
            else:
                made[name] = self._curvatures[param].get(name, torch.zeros_like(param))
        return made

    def shared(self, place: int) -> Slots:
        """Those of a group."""
        group = self._groups[place]
        first = group["params"][0]
        made = {}
        for name, kind in _shared(self._rules[place], group["params"]).items():
            value = torch.as_tensor(self._loss).detach().to(first.device, first.dtype).reshape(())
            due = not isinstance(kind, Measurement) or group["updates"] % kind.every == 0
            made[name] = value if due else torch.zeros_like(value)
        return made


def check_ingredients(rule: Optimizer, params: Sequence[torch.Tensor]) -> None:
    """Check that a rule needs nothing that only a bundle can give.

    Raises:
        ConfigurationError: It does.
    """
    own = [kind for param in params for kind in _ingredients(rule, param).values()]
    impossible = [kind for kind in own if not isinstance(kind, (Noise, HutchinsonDiagonal))]
    impossible += [kind for kind in _shared(rule, params).values() if not isinstance(kind, LossValue)]
    if impossible:
        raise ConfigurationError(
            f"{type(rule).__name__} needs {type(impossible[0]).__name__}, which takes the model and its loss; "
            "it works in a bundle only."
        )


def _curvatures(groups: Groups, rules: Sequence[Optimizer], seed: int) -> dict[Any, Slots]:
    """z ⊙ Hz for each parameter whose rule asks for it, where it is due."""
    asked: dict[Any, Slots] = {}
    due: list[tuple[torch.Tensor, str]] = []
    for group, rule in zip(groups, rules, strict=True):
        for param in group["params"]:
            for name, kind in _ingredients(rule, param).items():
                if isinstance(kind, Measurement):
                    asked.setdefault(param, {})
                    if param.grad is not None and group["updates"] % kind.every == 0:
                        due.append((param, name))
    if not due:
        return asked
    if any(param.grad is None or param.grad.grad_fn is None for param, _ in due):
        raise ConfigurationError("A rule needs curvature at this update: call loss.backward(create_graph=True).")
    updates = max(group["updates"] for group in groups)
    signs = [
        torch.as_tensor(draw(Rademacher(), tuple(param.shape), seed, updates, number), dtype=param.dtype)
        for number, (param, _) in enumerate(due)
    ]
    signs = [sign.to(param.device) for sign, (param, _) in zip(signs, due, strict=True)]
    gradients = [param.grad for param, _ in due if param.grad is not None]
    products = torch.autograd.grad(gradients, [param for param, _ in due], signs, retain_graph=True, allow_unused=True)
    for (param, name), sign, product in zip(due, signs, products, strict=True):
        asked[param][name] = torch.zeros_like(param) if product is None else sign * product
    return asked


def numpy_values(param: torch.Tensor) -> np.ndarray[Any, Any]:
    """The values of a parameter; those of bfloat16 in float32, since numpy has no bfloat16."""
    detached = param.detach().cpu()
    array: np.ndarray[Any, Any] = (detached.float() if detached.dtype == torch.bfloat16 else detached).numpy()
    return array


def numpy_dtype(param: torch.Tensor) -> np.dtype[Any]:
    """Their dtype."""
    dtype: np.dtype[Any] = numpy_values(param.detach().reshape(-1)[:0]).dtype
    return dtype


def _ingredients(rule: Optimizer, param: torch.Tensor) -> dict[str, Ingredient]:
    """What the rule needs for a parameter of this shape and dtype; its values stay where they are."""
    return rule.ingredients(_placeholder(param))


def _shared(rule: Optimizer, params: Sequence[torch.Tensor]) -> dict[str, Ingredient]:
    """What it needs for a group."""
    return rule.shared_ingredients({str(place): _placeholder(param) for place, param in enumerate(params)})


def _placeholder(param: torch.Tensor) -> np.ndarray[Any, Any]:
    """Zeros in the shape of the parameter that take no memory."""
    return np.broadcast_to(np.zeros((), numpy_dtype(param)), tuple(param.shape))
