"""Adapters in an export: put into the forward model, and what trains and how fast said to the rest of the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from edgeopt.adapters import Adapter, adapt
from edgeopt.bundle import Bundle
from edgeopt.optimizers import ParameterGroups
from edgeopt.optimizers.groups import exactly
from edgeopt.training import ForwardModel, compose
from edgeopt.training.plan import select_trainable
from edgeopt_exporters.verification.adapted import AdaptedReference, at_moved, representable
from edgeopt_exporters.verification.reference import Reference

__all__ = ["adapted", "checkable"]


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


def checkable(
    bundle: Bundle,
    forward: ForwardModel,
    settings: Mapping[str, Any],
    plain: ForwardModel,
    adapters: Sequence[Adapter],
    asked: Mapping[str, Any],
    reference: Reference,
) -> tuple[Bundle, ForwardModel, Reference] | None:
    """A bundle like this one, whose adapters do something, and what it is to be compared with.

    At their first values most adapters do nothing, so that nothing would be learnt of them; and PyTorch's random
    numbers cannot be drawn where the module has no dropout.

    Args:
        bundle: What was exported.
        forward: The model with its adapters.
        settings: What it was composed with.
        plain: The model without them.
        adapters: As they were given.
        asked: The settings that were given with them.
        reference: The model to compare with.

    Returns:
        The arguments of `verify`; None if the model cannot have the merged weights.
    """
    if forward.merging is None:
        return bundle, forward, reference
    if not representable(forward.merging, plain):
        return None
    steady = tuple(adapter.steady() for adapter in adapters)
    moved = at_moved(forward if steady == tuple(adapters) else adapted(plain, steady, asked)[0], plain)
    # Averages that evaluation reads begin at the parameters.
    if steady == tuple(adapters) and "view" not in bundle.manifest.signatures:
        tensors = {name: moved.parameters[name] for name in bundle.state if name in moved.parameters}
        changed = replace(bundle, state={**bundle.state, **tensors})
    else:
        changed = Bundle.of(compose(moved, **settings, signatures=("accumulate", "predict")))
    return changed, moved, AdaptedReference(reference, moved, forward.merging)
