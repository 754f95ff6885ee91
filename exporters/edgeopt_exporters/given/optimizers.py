"""Optimizers, and those of PyTorch that hold the parameters of the model."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any, NamedTuple

from edgeopt.components import described
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import ParameterGroups, as_groups
from edgeopt.optimizers.groups import exactly
from edgeopt_runtime.manifest import Decision

__all__ = ["Given", "as_optimizer"]


class Given(NamedTuple):
    """The rules for a model's parameters, the patterns of those that train, and what was settled about both."""

    groups: ParameterGroups
    trainable: str | tuple[str, ...] | None
    decisions: tuple[Decision, ...] = ()


def as_optimizer(optimizer: Any, trainable: Any, module: Any) -> Given:
    """The optimizer that was given, and which parameters it trains.

    An optimizer of PyTorch that holds only some of the module's parameters trains those.

    Args:
        optimizer: See `edgeopt.optimizers.as_groups`.
        trainable: Patterns of names; None for no wish.
        module: The `torch.nn.Module`; None for a file, whose parameters no optimizer of PyTorch holds.

    Raises:
        ConfigurationError: It is none, or holds parameters of another model; or `trainable` does not consist of words,
            or names what the optimizer does not hold.
    """
    named = {} if module is None else dict(module.named_parameters())
    groups = as_groups(optimizer, {id(parameter): name for name, parameter in named.items()})
    patterns = _patterns(trainable)
    if not hasattr(optimizer, "param_groups"):
        return Given(groups, patterns)
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    left = [name for name, parameter in named.items() if id(parameter) not in held and parameter.requires_grad]
    decisions = [_state_stays()] if optimizer.state else []
    if patterns is None and left:
        patterns = tuple(
            exactly(name) for name, parameter in named.items() if id(parameter) in held and parameter.requires_grad
        )
        text = f"{len(patterns)} of {len(named)} parameters train, those that the optimizer holds."
        decisions.append(Decision("optimizer", "parameters", text))
    wanted = (patterns,) if isinstance(patterns, str) else patterns or ()
    beyond = [name for name in left if any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted)]
    if beyond:
        raise ConfigurationError(
            f"trainable names {beyond[0]!r}, which the optimizer does not hold; make it of all that shall train."
        )
    return Given(groups, patterns, tuple(decisions))


def _patterns(trainable: Any) -> str | tuple[str, ...] | None:
    if trainable is None or isinstance(trainable, str):
        return trainable
    patterns = (
        trainable if isinstance(trainable, (bool, Mapping)) or not hasattr(trainable, "__iter__") else [*trainable]
    )
    if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
        raise ConfigurationError(
            f"trainable takes patterns of parameter names, trainable='head.*', or None for all; got "
            f"{described(trainable)}."
        )
    return tuple(patterns)


def _state_stays() -> Decision:
    text = (
        "The optimizer's settings are taken over, but not what it gathered in its steps: "
        "edgeopt.compat.torch.load_torch_state(bundle, optimizer.state_dict()) takes that over, too."
    )
    return Decision("optimizer", "state", text, warning=True)
