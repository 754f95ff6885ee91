"""The state of a rule beside a parameter of PyTorch, and whether a state that is to be loaded is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from edgeopt.compat.settings import current
from edgeopt.compat.torch.given import numpy_dtype, numpy_values
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import Optimizer

__all__ = ["OWN", "SHARED", "check_state", "tensor"]

#: Entries of a parameter group that are no settings of the rule.
OWN = ("params", "param_names", "lr", "initial_lr", "updates", "rule")

#: Where the first parameter of a group keeps what the group shares.
SHARED = "shared"

Groups = Sequence[Mapping[str, Any]]


def tensor(array: np.ndarray[Any, Any], param: torch.Tensor) -> torch.Tensor:
    """A slot beside its parameter: those of the parameter's dtype have it in torch, others keep theirs."""
    made = torch.tensor(array)
    return made.to(param.device, param.dtype if array.dtype == numpy_dtype(param) else made.dtype)


def check_state(state_dict: Mapping[str, Any], groups: Groups, rules: Sequence[Optimizer]) -> None:
    """Check that a state is one of these rules with the settings that it holds itself, and of such parameters.

    Args:
        state_dict: What is to be loaded.
        groups: The groups of the optimizer that is to have it.
        rules: The rule of each.

    Raises:
        ConfigurationError: It is not; the message names what is missing, left over, or shaped otherwise.
    """
    if not isinstance(state_dict, Mapping) or not {"state", "param_groups"} <= state_dict.keys():
        raise ConfigurationError("This is no state of an optimizer: it has `state` and `param_groups`.")
    saved = state_dict["param_groups"]
    sizes = [[len(group["params"]) for group in each] for each in (saved, groups)]
    if sizes[0] != sizes[1]:
        raise ConfigurationError(
            f"This state has groups of {sizes[0]} parameters, where the optimizer has groups of {sizes[1]}."
        )
    for theirs, own, rule in zip(saved, groups, rules, strict=True):
        missing = {"lr", "updates", *rule.hyperparameters()} - theirs.keys()
        if missing:
            raise ConfigurationError(
                f"This state is not that of {type(rule).__name__}: there is no {', '.join(sorted(missing))}."
            )
        now = current(rule, {name: value for name, value in theirs.items() if name not in OWN})
        params = {str(number): param for number, param in enumerate(own["params"])}
        shared = now.init_shared({name: numpy_values(param) for name, param in params.items()})
        for (name, param), place in zip(params.items(), theirs["params"], strict=True):
            entry = state_dict["state"].get(place)
            if entry:
                _check_entry(f"parameter {place}", entry, now, param, shared if name == "0" else {})


def _check_entry(
    owner: str,
    entry: Mapping[str, Any],
    rule: Optimizer,
    param: torch.Tensor,
    shared: Mapping[str, np.ndarray[Any, Any]],
) -> None:
    expected = {slot: tensor(array, param) for slot, array in rule.init(numpy_values(param)).items()}
    found = {slot: value for slot, value in entry.items() if slot not in ("step", SHARED)}
    # A momentum that has been switched off leaves its buffer, to go on from if it is switched on again.
    idle = {"momentum_buffer"} if getattr(rule, "momentum", None) == 0.0 else set()
    _compare(owner, {**expected, "step": torch.tensor(0)}, {**found, **_some(entry, "step")}, rule, idle)
    if shared or SHARED in entry:
        of_group = {slot: tensor(array, param) for slot, array in shared.items()}
        _compare(f"the group of {owner}", of_group, entry.get(SHARED, {}), rule, set())


def _some(entry: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {name: entry[name]} if name in entry else {}


def _compare(
    owner: str, expected: Mapping[str, torch.Tensor], found: Mapping[str, Any], rule: Optimizer, idle: set[str]
) -> None:
    kind, missing, extra = type(rule).__name__, expected.keys() - found.keys(), found.keys() - expected.keys() - idle
    if missing or extra:
        wants = f"it lacks {', '.join(sorted(missing))}" if missing else ""
        has = f"nothing would read its {', '.join(sorted(extra))}" if extra else ""
        problem = " and ".join(filter(None, (wants, has)))
        raise ConfigurationError(f"This state is not that of {kind} with these settings: of {owner} {problem}.")
    for slot, wanted in expected.items():
        value = found[slot]
        if not isinstance(value, torch.Tensor) or value.shape != wanted.shape:
            shape = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise ConfigurationError(
                f"This state is not that of {kind}: {slot} of {owner} is {shape}, where it has shape "
                f"{tuple(wanted.shape)}."
            )
        if slot != "step" and value.dtype != wanted.dtype:
            raise ConfigurationError(
                f"This state is not that of {kind}: {slot} of {owner} is {value.dtype}, where it has {wanted.dtype}."
            )
