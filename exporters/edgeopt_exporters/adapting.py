"""Adapters in an export: put into the forward model, and what trains and how fast said to the rest of the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from edgeopt.adapters import Adapter, adapt
from edgeopt.optimizers import ParameterGroups
from edgeopt.optimizers.groups import exactly
from edgeopt.training import ForwardModel
from edgeopt.training.plan import select_trainable

__all__ = ["adapted"]


def adapted(
    forward: ForwardModel, adapters: Sequence[Adapter], settings: Mapping[str, Any]
) -> tuple[ForwardModel, Mapping[str, Any]]:
    """The model with its adapters, and the settings of `compose` that belong to it.

    Args:
        forward: The model.
        adapters: Any number.
        settings: What is asked for; `trainable` are the model's own parameters that train besides, None for none.
    """
    if not adapters:
        return forward, settings
    own = settings["trainable"]
    also = () if own is None else select_trainable(forward, own)
    found = adapt(forward, adapters, also, settings["seed"])
    optimizer: ParameterGroups = settings["optimizer"]
    groups = (*optimizer.groups, *found.groups)
    return found.model, {
        **settings,
        "trainable": tuple(exactly(name) for name in found.trained),
        "optimizer": replace(optimizer, groups=groups),
    }
