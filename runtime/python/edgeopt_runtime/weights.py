"""Weights by every name that they have in the model, as PyTorch's ``state_dict`` gives and takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgeopt_runtime.manifest import Manifest

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["unwrapped", "with_aliases"]

# What DataParallel, DistributedDataParallel and PEFT put in front of every name; what `torch.compile` and PEFT put into
# them.
BEFORE = ("module.", "base_model.model.")
INSIDE = ("_orig_mod", "base_layer")


def with_aliases(manifest: Manifest, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """These arrays, and those with more than one name under each of them."""
    return {**arrays, **{alias: arrays[name] for alias, name in manifest.aliases.items() if name in arrays}}


def unwrapped(name: str) -> str:
    """A name without what wrappers of modules put into it."""
    name = ".".join(part for part in name.split(".") if part not in INSIDE)
    for addition in BEFORE:
        name = name.removeprefix(addition)
    return name
