"""Hooks on gradients: they run in a backward pass of PyTorch, which an exported graph does not have."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn.modules import module as _modules

from edgeopt.errors import UnsupportedModelError

__all__ = ["INSTEAD", "refuse_gradient_hooks"]

INSTEAD = (
    "The exported graphs would train without it. Remove the hook and say what it does in forward (x * scale + "
    "(x - x * scale).detach() scales a gradient, detach() stops it), by `trainable=` for what is not to move, or by "
    "`transforms=` for gradients on their way to the optimizer."
)


def refuse_gradient_hooks(module: torch.nn.Module) -> None:
    """Refuse hooks that would see or change gradients, by the names of what they hang on.

    Hooks of the forward pass are traced like the rest of it.

    Raises:
        UnsupportedModelError: There are such hooks.
    """
    found = [*_of_parameters(module), *_of_parts(module), *_of_all_modules()]
    if found:
        raise UnsupportedModelError(f"{type(module).__name__} has {', '.join(found)}. {INSTEAD}")


def _of_parameters(module: torch.nn.Module) -> Iterator[str]:
    for name, parameter in module.named_parameters():
        if getattr(parameter, "_backward_hooks", None):
            yield f"a gradient hook on the parameter {name!r} (register_hook)"
        if getattr(parameter, "_post_accumulate_grad_hooks", None):
            yield f"a gradient hook on the parameter {name!r} (register_post_accumulate_grad_hook)"


def _of_parts(module: torch.nn.Module) -> Iterator[str]:
    for name, part in module.named_modules():
        where = f"the module {name!r}" if name else "the module itself"
        if part._backward_pre_hooks:
            yield f"a backward hook on {where} (register_full_backward_pre_hook)"
        if part._backward_hooks:
            kind = "register_full_backward_hook" if part._is_full_backward_hook else "register_backward_hook"
            yield f"a backward hook on {where} ({kind})"


def _of_all_modules() -> Iterator[str]:
    if _modules._global_backward_pre_hooks:
        yield "a backward hook on all modules (register_module_full_backward_pre_hook)"
    if _modules._global_backward_hooks:
        yield "a backward hook on all modules (register_module_full_backward_hook)"
