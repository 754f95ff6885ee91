"""Weights by every name that they have in the model, as PyTorch's ``state_dict`` gives and takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeopt_runtime.errors import StateError
from edgeopt_runtime.manifest import Manifest

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["by_own_name", "unwrapped", "with_aliases"]

# What DataParallel and DistributedDataParallel put in front of every name, and `torch.compile` into them.
WRAPPER, COMPILED = "module.", "_orig_mod."


def with_aliases(manifest: Manifest, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """These arrays, and those with more than one name under each of them."""
    return {**arrays, **{alias: arrays[name] for alias, name in manifest.aliases.items() if name in arrays}}


def by_own_name(manifest: Manifest, given: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Arrays under the names that their tensors have in the bundle.

    Args:
        manifest: Knows the tensors and their other names.
        given: Arrays, or tensors of PyTorch in CPU memory, by any of the names. Names may begin with ``module.`` and
            contain ``_orig_mod.``, as those of a wrapped module do.

    Raises:
        StateError: There are no names; a value cannot be read; or one tensor is given two values.
    """
    if not isinstance(given, Mapping):
        raise StateError(f"Parameters are given by name, as in `model.state_dict()`; got {type(given).__name__}.")
    plain = {unwrapped(spec.name): spec.name for spec in manifest.tensors}
    plain.update({unwrapped(alias): name for alias, name in manifest.aliases.items()})
    known = {**plain, **manifest.aliases, **{spec.name: spec.name for spec in manifest.tensors}}
    arrays: dict[str, NDArray[Any]] = {}
    for name, value in given.items():
        own = known.get(name) or known.get(unwrapped(str(name)), name)
        array = _as_array(name, value)
        if own in arrays and not np.array_equal(arrays[own], array):
            raise StateError(f"`{name}` and `{own}` are one tensor of this model, but are given different values.")
        arrays[own] = array
    return arrays


def unwrapped(name: str) -> str:
    """A name without what wrappers of modules put into it."""
    return name.replace(COMPILED, "").removeprefix(WRAPPER)


def _as_array(name: str, value: Any) -> NDArray[Any]:
    """A value as an array; a parameter of PyTorch comes without its gradient."""
    if hasattr(value, "detach"):
        value = value.detach()
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        advice = "give `.cpu()` of it; of a bfloat16, `.view(torch.uint16)`"
        raise StateError(f"The value of `{name}` cannot be read as an array ({error}): {advice}.") from error
