"""The universal converter: which framework a configuration comes from, and the rule for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers.base import Optimizer
from edgeopt.optimizers.config import keras, narrow, optax, torch
from edgeopt.optimizers.groups import Group, ParameterGroups, exactly

__all__ = ["from_config"]

KERAS_PACKAGES = ("keras", "tf_keras", "tensorflow")

FORMS = (
    'torch: an optimizer, also of bitsandbytes and torchao, or {"name": "AdamW", "defaults": {...}} or '
    '{"name": "AdamW", "param_groups": [...]}, each with "scheduler": {"name": "StepLR", "kwargs": {...}} '
    "if there is one; "
    'optax: {"name": "adamw", "kwargs": {...}}; '
    'Keras: an optimizer, or what keras.optimizers.serialize() gives, {"class_name": "Adam", "config": {...}}'
)


def from_config(config: Any) -> Optimizer | ParameterGroups:
    """The update rule that a configuration of PyTorch, optax or Keras describes.

    Args:
        config: One of

            - bitsandbytes or torchao: an optimizer.
            - PyTorch: an optimizer; or `{"name": class, "defaults": options}`; or
              `{"name": class, "param_groups": groups}` as in a `state_dict`. With `"scheduler"`, a mapping
              `{"name": class of torch.optim.lr_scheduler, "kwargs": arguments}`, the rate follows it, from the rate
              that it began with.
            - optax: `{"name": function, "kwargs": arguments}`, where `learning_rate` is a number or again
              `{"name": schedule, "kwargs": arguments}`.
            - Keras: an optimizer, or the dictionary of `keras.optimizers.serialize()`. That of `get_config()` does not
              say the class, for its name is the user's; it is taken where its options are those of one class alone.

    Returns:
        A rule; or, for several parameter groups of PyTorch with different options and with names
        (`torch.optim.AdamW(model.named_parameters())`), the groups.

    Raises:
        ConfigurationError: The form is unknown, there is no rule of the same formula, or an option has no equal; it is
            never ignored.
    """
    groups = getattr(config, "param_groups", None)
    if groups is not None:
        _from_package(config, ("torch", *narrow.PACKAGES))
        if type(config).__module__.partition(".")[0] in narrow.PACKAGES:
            return grouped(type(config).__name__, narrow.convert(config, groups), groups)
        return _torch({"name": type(config).__name__, "param_groups": groups})
    if callable(getattr(config, "get_config", None)):
        _from_package(config, KERAS_PACKAGES)
        config = {"class_name": type(config).__name__, "config": config.get_config()}
    if not isinstance(config, Mapping):
        raise ConfigurationError(f"Cannot read a configuration from {type(config).__name__}; give one of {FORMS}.")
    if "defaults" in config or "param_groups" in config:
        return _torch(config)
    if "kwargs" in config:
        _known_keys(config, "optax", ("name", "kwargs"))
        name = _name(config.get("name"), "optax", optax.OPTAX)
        return optax.convert(name, config["kwargs"])
    if "class_name" in config:
        _known_keys(config, "keras", ("module", "class_name", "config", "registered_name", "build_config"))
        module = config.get("module")
        if module is not None and str(module).partition(".")[0] not in KERAS_PACKAGES:
            _refuse_class(f"{module}.{config['class_name']}")
        return _keras(config["class_name"], config.get("config", {}))
    if "learning_rate" in config and "name" in config:
        return _keras(_class_by_options(config), config)
    raise ConfigurationError(f"Cannot tell which framework {sorted(map(str, config))} come from; give one of {FORMS}.")


def _from_package(optimizer: Any, packages: Sequence[str]) -> None:
    """Refuse classes that are called as those of a framework and are others."""
    module = type(optimizer).__module__
    if module.partition(".")[0] not in packages:
        _refuse_class(f"{module}.{type(optimizer).__name__}")


def _refuse_class(name: str) -> NoReturn:
    raise ConfigurationError(f"{name} is a class of its own, whose formula nobody here knows, whatever it is called.")


def _class_by_options(config: Mapping[str, Any]) -> str:
    """The class whose options these are, if it is one alone."""
    own = config.keys() - keras.COMMON
    found = [name for name, options in keras.OPTIONS.items() if own == options]
    if len(found) != 1:
        raise ConfigurationError(
            f"The name of a Keras optimizer is its user's, and {', '.join(sorted(own)) or 'no option'} may be those of "
            "several classes or of none: give the optimizer itself, or keras.optimizers.serialize(optimizer)."
        )
    return found[0]


def _keras(name: Any, options: Mapping[str, Any]) -> Optimizer:
    return keras.convert(_name(str(name).rpartition(">")[2].lower(), "keras.optimizers", keras.KERAS), options)


def _torch(config: Mapping[str, Any]) -> Optimizer | ParameterGroups:
    _known_keys(config, "torch.optim", ("name", "defaults", "param_groups", "scheduler"))
    name = _name(config.get("name"), "torch.optim", torch.TORCH)
    groups = config.get("param_groups", [config.get("defaults")])
    if not isinstance(groups, Sequence) or not all(isinstance(group, Mapping) for group in groups):
        raise ConfigurationError(f"torch.optim.{name}: options must be mappings; give one of {FORMS}.")
    for group in groups if "scheduler" not in config else ():
        if group.get("initial_lr", group.get("lr")) != group.get("lr"):
            raise ConfigurationError(
                f"torch.optim.{name}: a scheduler has moved the rate from {group['initial_lr']} to {group['lr']}. "
                'Describe it under "scheduler", or give "scheduler": None for a constant rate.'
            )
    rules = [torch.convert(name, group, config.get("scheduler")) for group in groups]
    return grouped(f"torch.optim.{name}", rules, groups)


def grouped(owner: str, rules: Sequence[Optimizer], groups: Sequence[Mapping[str, Any]]) -> Optimizer | ParameterGroups:
    """The rules of parameter groups of PyTorch as one, or by the names of the parameters.

    Raises:
        ConfigurationError: There are none, or several without names.
    """
    if not rules:
        raise ConfigurationError(f"{owner}: there is no parameter group.")
    if all(rule == rules[0] for rule in rules):
        return rules[0]
    names = [group.get("param_names", ()) for group in groups]
    if not all(names):
        raise ConfigurationError(
            f"{owner}: the parameter groups have different options, and no names to tell them apart. Make "
            "the optimizer from `model.named_parameters()`, or convert one group at a time."
        )
    others = zip(rules[1:], names[1:], strict=True)
    return ParameterGroups(rules[0], tuple(Group(tuple(map(exactly, own)), optimizer=rule) for rule, own in others))


def _name(name: Any, framework: str, table: Mapping[str, Any]) -> str:
    if name not in table:
        raise ConfigurationError(
            f"No rule here has the formula of {framework}.{name}; those of {', '.join(table)} have an equal."
        )
    return str(name)


def _known_keys(config: Mapping[str, Any], framework: str, known: Sequence[str]) -> None:
    unknown = sorted(str(key) for key in config if key not in known)
    if unknown:
        raise ConfigurationError(f"{framework}: a configuration has {', '.join(known)}, but not {', '.join(unknown)}.")
