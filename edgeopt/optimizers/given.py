"""Whatever may be given as an optimizer, as groups of parameters with their rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

from edgeopt.components import described
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers.base import Optimizer
from edgeopt.optimizers.config import from_config, narrow
from edgeopt.optimizers.config.convert import grouped
from edgeopt.optimizers.groups import Group, ParameterGroups
from edgeopt.optimizers.pairs import Pair
from edgeopt.optimizers.registry import OPTIMIZER

__all__ = ["OptimizerLike", "as_groups"]

EXAMPLE = OPTIMIZER.example

#: What is accepted as an optimizer: a rule, its class, or its name in words; groups; groups in a list with the rule for
#: the rest; or what `from_config` reads, such as an optimizer of PyTorch.
OptimizerLike: TypeAlias = (
    "Optimizer | type[Optimizer] | str | ParameterGroups | Sequence[Group | Optimizer | type[Optimizer] | str] | Any"
)


def as_groups(optimizer: OptimizerLike, names: Mapping[int, str] | None = None) -> ParameterGroups:
    """The optimizer as groups.

    Args:
        optimizer: What was given.
        names: The names of a model's parameters by their `id`, for an optimizer of PyTorch that holds them.

    Raises:
        ConfigurationError: It is none, or has no equal; a list does not hold exactly one rule; or there are `names`,
            and it holds parameters that are not among them.
    """
    if isinstance(optimizer, Group):
        raise ConfigurationError("A Group leaves the others without a rule; give [Group(...), AdamW(lr=...)].")
    if not _is_list(optimizer):
        rule = _as_rule(optimizer, names)
        return rule if isinstance(rule, ParameterGroups) else ParameterGroups(rule)
    rules = [_as_rule(entry, names) for entry in optimizer if not isinstance(entry, Group)]
    if len(rules) != 1 or isinstance(rules[0], ParameterGroups):
        raise ConfigurationError(
            f"A list of groups must hold one rule for the rest, got {len(rules)}: [Group(...), AdamW(lr=...)]."
        )
    return ParameterGroups(rules[0], tuple(entry for entry in optimizer if isinstance(entry, Group)))


def _as_rule(optimizer: Any, names: Mapping[int, str] | None) -> Optimizer | ParameterGroups:
    if isinstance(optimizer, (Optimizer, ParameterGroups)):
        return optimizer
    if isinstance(optimizer, Pair):
        return optimizer()
    if isinstance(optimizer, str) or (isinstance(optimizer, type) and issubclass(optimizer, Optimizer)):
        return OPTIMIZER.one(optimizer)
    if _is_optax(optimizer):
        what = described(optimizer)
        raise ConfigurationError(
            f"{what[0].upper()}{what[1:]} cannot be looked into, being functions; give the rule, such as {EXAMPLE}, or "
            'the configuration, {"name": "adamw", "kwargs": {"learning_rate": 1e-3}}.'
        )
    if hasattr(optimizer, "last_epoch") or any("initial_lr" in group for group in _param_groups(optimizer)):
        raise ConfigurationError(
            "A scheduler of PyTorch counts calls of its step(), often one an epoch, and a schedule here counts "
            "updates; give the optimizer without it, and the rate as a schedule: "
            "edgeopt.optimizers.AdamW(lr=edgeopt.schedules.WarmupCosine(1e-3, warmup_steps=100, total_steps=2000))."
        )
    if isinstance(optimizer, Mapping) and not optimizer.keys() & {"name", "class_name"}:
        settings = ", ".join(f"{'lr' if key == 'learning_rate' else key}={each!r}" for key, each in optimizer.items())
        raise ConfigurationError(
            f"The optimizer is given as settings without a rule; give one, edgeopt.optimizers.AdamW({settings})."
        )
    if isinstance(optimizer, type) and _is_torch(optimizer):
        # A class of torch.optim has one meaning, its defaults.
        return from_config({"name": optimizer.__name__, "defaults": {}})
    if type(optimizer).__module__.partition(".")[0] in narrow.PACKAGES:
        groups = _param_groups(optimizer)
        if names is not None:
            groups = [{**group, "param_names": _names(group["params"], names)} for group in groups]
        return grouped(type(optimizer).__name__, narrow.convert(optimizer, groups), groups)
    if names is not None and _is_torch(type(optimizer)):
        groups = [{**group, "param_names": _names(group["params"], names)} for group in _param_groups(optimizer)]
        return from_config({"name": type(optimizer).__name__, "param_groups": groups})
    if isinstance(optimizer, Mapping) or _is_torch(type(optimizer)) or _has_config(optimizer):
        return from_config(optimizer)
    if hasattr(optimizer, "rule"):
        raise ConfigurationError(f"{type(optimizer).__name__} is for PyTorch; give its rule itself, such as {EXAMPLE}.")
    return OPTIMIZER.one(optimizer)


def _names(parameters: Sequence[Any], names: Mapping[int, str]) -> list[str]:
    found = [names.get(id(parameter)) for parameter in parameters]
    if None in found:
        raise ConfigurationError(
            f"The optimizer holds {found.count(None)} parameters that are not this model's; make it of "
            f"model.parameters(), or give a rule, such as {EXAMPLE}."
        )
    return [name for name in found if name is not None]


def _is_torch(cls: type[Any]) -> bool:
    """Whether it is a class of torch.optim's own: others of the same name may compute something else."""
    if cls.__module__.startswith("torch.optim.") and cls.__name__ == "LBFGS":
        raise ConfigurationError(
            "LBFGS takes several looks at its batches; export with any optimizer, and let the device call "
            'session.minimize(batches, method="lbfgs").'
        )
    return cls.__module__.startswith("torch.optim.")


def _has_config(optimizer: Any) -> bool:
    """Whether it is an optimizer of Keras."""
    return callable(getattr(optimizer, "get_config", None)) and not isinstance(optimizer, type)


def _param_groups(optimizer: Any) -> Sequence[Mapping[str, Any]]:
    groups = getattr(optimizer, "param_groups", ())
    return groups if isinstance(groups, Sequence) else ()


def _is_list(optimizer: Any) -> TypeGuard[Sequence[Any]]:
    """Whether it is a sequence of entries: words are not, nor are the pairs of functions that optax makes."""
    return isinstance(optimizer, Sequence) and not isinstance(optimizer, str) and not hasattr(optimizer, "_fields")


def _is_optax(optimizer: Any) -> bool:
    """Whether it is one of optax's functions, or the pair of functions that they make."""
    pair = getattr(optimizer, "_fields", ())[:2] == ("init", "update")
    return pair or str(getattr(optimizer, "__module__", "")).partition(".")[0] == "optax"
