"""Optimizers of Keras 3, as `get_config` or `keras.optimizers.serialize` gives them; tf.keras has the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edgeopt.optimizers.base import Rule
from edgeopt.optimizers.config.keras_schedules import schedule
from edgeopt.optimizers.config.options import Options
from edgeopt.optimizers.rules.adaptive.adagrad import Adadelta, Adagrad
from edgeopt.optimizers.rules.adaptive.adam import Adam
from edgeopt.optimizers.rules.adaptive.nadam import NAdam
from edgeopt.optimizers.rules.adaptive.rmsprop import RMSprop
from edgeopt.optimizers.rules.sgd.sgd import SGD
from edgeopt.optimizers.rules.sgd.sign import Lion

__all__ = ["COMMON", "KERAS", "OPTIONS", "convert"]

# What the optimizer is called, and how it is compiled.
IGNORED = ("name", "jit_compile", "is_legacy_optimizer")
# Settings of the base class that are no part of the rule, and what to use in their place.
ELSEWHERE = {
    "clipnorm": "clips each gradient by its own norm, which no transform here does",
    "global_clipnorm": "is a transform here: transforms=[ClipByGlobalNorm(...)]",
    "clipvalue": "is a transform here: transforms=[ClipByValue(...)]",
    "use_ema": "averages the weights, which is another rule here",
    "gradient_accumulation_steps": "is up to the device here: session.accumulate, session.apply",
    "loss_scale_factor": "scales the loss, which a bundle does not do",
    "decay": "is the old way to give a schedule: use InverseTimeDecay",
}
MOMENTUM = "its momentum holds steps, here it holds gradients, which is the same for a constant rate only"


def _moments(o: Options) -> dict[str, Any]:
    return {"beta1": o.number("beta_1", 0.9), "beta2": o.number("beta_2", 0.999), "eps": o.number("epsilon", 1e-7)}


def _constant_if(momentum: float, o: Options, lr: Any) -> float:
    if momentum and not isinstance(lr, float):
        o.refuse(MOMENTUM)
    return momentum


def _sgd(o: Options, lr: Any, decay: dict[str, Any]) -> Rule:
    momentum = _constant_if(o.number("momentum", 0.0), o, lr)
    return SGD(lr, momentum=momentum, nesterov=o.flag("nesterov") and momentum > 0, **decay)


def _adam(o: Options, lr: Any, decay: dict[str, Any]) -> Rule:
    return Adam(lr, **_moments(o), amsgrad=o.flag("amsgrad"), eps_hat=True, **decay)


def _nadam(o: Options, lr: Any, decay: dict[str, Any]) -> Rule:
    return NAdam(lr, **_moments(o), momentum_decay=1.0, **decay)


def _rmsprop(o: Options, lr: Any, decay: dict[str, Any]) -> Rule:
    return RMSprop(
        lr,
        alpha=o.number("rho", 0.9),
        eps=o.number("epsilon", 1e-7),
        momentum=_constant_if(o.number("momentum", 0.0), o, lr),
        centered=o.flag("centered"),
        eps_in_root=True,
        **decay,
    )


def _adagrad(o: Options, lr: Any, decay: dict[str, Any]) -> Rule:
    initial = o.number("initial_accumulator_value", 0.1)
    eps = o.number("epsilon", 1e-7)
    return Adagrad(lr, eps=eps, initial_accumulator_value=initial, eps_in_root=True, **decay)


def _adadelta(o: Options, lr: Any, decay: dict[str, Any]) -> Rule:
    return Adadelta(lr, rho=o.number("rho", 0.95), eps=o.number("epsilon", 1e-7), **decay)


def _lion(o: Options, lr: Any, decay: dict[str, Any]) -> Rule:
    return Lion(lr, beta1=o.number("beta_1", 0.9), beta2=o.number("beta_2", 0.99), **decay)


# Converter, and Keras's own learning rate and weight decay. Every Keras optimizer decays the weights before the step.
KERAS: dict[str, tuple[Callable[[Options, Any, dict[str, Any]], Rule], float, float]] = {
    "adadelta": (_adadelta, 1e-3, 0.0),
    "adagrad": (_adagrad, 1e-3, 0.0),
    "adam": (_adam, 1e-3, 0.0),
    "adamw": (_adam, 1e-3, 4e-3),
    "lion": (_lion, 1e-3, 0.0),
    "nadam": (_nadam, 1e-3, 0.0),
    "rmsprop": (_rmsprop, 1e-3, 0.0),
    "sgd": (_sgd, 1e-2, 0.0),
}


#: What `get_config` of every optimizer holds.
COMMON = frozenset({*IGNORED, *ELSEWHERE, "learning_rate", "weight_decay", "ema_momentum", "ema_overwrite_frequency"})

#: What `get_config` of a class holds beside, where no other class of Keras has the same. `AdamW` is `Adam` with a
#: weight decay, which both hold. Nadam, Adamax and Lamb have the same options as each other.
OPTIONS: dict[str, frozenset[str]] = {
    "adadelta": frozenset({"rho", "epsilon"}),
    "adagrad": frozenset({"initial_accumulator_value", "epsilon"}),
    "adam": frozenset({"beta_1", "beta_2", "epsilon", "amsgrad"}),
    "lion": frozenset({"beta_1", "beta_2"}),
    "rmsprop": frozenset({"rho", "momentum", "epsilon", "centered"}),
    "sgd": frozenset({"momentum", "nesterov"}),
}


def convert(name: str, options: Mapping[str, Any]) -> Rule:
    """The rule of a Keras optimizer.

    Args:
        name: Its class in lower case.
        options: Its configuration; `learning_rate` is a number or a serialized schedule.

    Raises:
        ConfigurationError: An option has no equal, or belongs somewhere else here; the message says where.
    """
    build, default_rate, default_decay = KERAS[name]
    o = Options(f"keras.optimizers.{name}", options, IGNORED)
    for option, instead in ELSEWHERE.items():
        o.only(option, None, False, 0.0, because=instead)
    # These only matter with use_ema.
    for option in ("ema_momentum", "ema_overwrite_frequency"):
        o.take(option)
    rate = o.take("learning_rate", default_rate)
    lr = schedule(rate) if isinstance(rate, Mapping) else float(rate)
    weight_decay = o.take("weight_decay", default_decay)
    rule = build(o, lr, {"weight_decay": float(weight_decay or 0.0), "decay": "before"})
    o.finish()
    return rule
