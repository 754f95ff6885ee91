"""Optimizers of optax (0.2), by the name of the function and its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edgeopt.optimizers.base import Rule
from edgeopt.optimizers.config.optax_schedules import schedule
from edgeopt.optimizers.config.options import Options
from edgeopt.optimizers.rules.adaptive.adagrad import Adadelta, Adagrad
from edgeopt.optimizers.rules.adaptive.adam import Adam
from edgeopt.optimizers.rules.adaptive.adamax import Adamax
from edgeopt.optimizers.rules.adaptive.ademamix import AdEMAMix, SimplifiedAdEMAMix
from edgeopt.optimizers.rules.adaptive.adopt import ADOPT
from edgeopt.optimizers.rules.adaptive.nadam import NAdam
from edgeopt.optimizers.rules.adaptive.rmsprop import RMSprop
from edgeopt.optimizers.rules.adaptive.yogi import Yogi
from edgeopt.optimizers.rules.layerwise.lamb import LAMB
from edgeopt.optimizers.rules.sgd.sgd import SGD
from edgeopt.optimizers.rules.sgd.sign import Lion, SignSGD
from edgeopt.schedules import Constant

__all__ = ["OPTAX", "convert"]


def _decay(o: Options, default: float = 0.0) -> dict[str, Any]:
    """optax adds the decay to the update, which is then multiplied by the rate: decoupled decay."""
    o.only("mask", None, because="selects parameters: give a Group with another weight_decay instead")
    return {"weight_decay": o.number("weight_decay", default), "decay": "before"}


def _moments(o: Options, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> dict[str, Any]:
    o.only("mu_dtype", None)
    o.only("eps_root", 0.0)
    return {"beta1": o.number("b1", beta1), "beta2": o.number("b2", beta2), "eps": o.number("eps", eps)}


def _adam(o: Options, lr: Any, weight_decay: float | None = None, nesterov: bool = False) -> Rule:
    settings = _moments(o)
    if weight_decay is not None:
        settings.update(_decay(o, weight_decay))
    if o.flag("nesterov", nesterov):
        return NAdam(lr, variant="simple", **settings)
    return Adam(lr, **settings)


def _sgd(o: Options, lr: Any) -> Rule:
    o.only("accumulator_dtype", None)
    momentum = o.take("momentum")
    return SGD(lr, momentum=0.0 if momentum is None else float(momentum), nesterov=o.flag("nesterov"))


def _rmsprop(o: Options, lr: Any) -> Rule:
    momentum = o.take("momentum")
    if momentum and not isinstance(lr, (int, float, Constant)):
        o.refuse("its momentum holds steps, here it holds gradients, which is the same for a constant rate only")
    o.only("initial_scale", 0.0)
    o.only("nesterov", False)
    o.only("bias_correction", False)
    return RMSprop(
        lr,
        alpha=o.number("decay", 0.9),
        eps=o.number("eps", 1e-8),
        momentum=float(momentum or 0.0),
        centered=o.flag("centered"),
        eps_in_root=o.flag("eps_in_sqrt", True),
    )


def _adagrad(o: Options, lr: Any) -> Rule:
    initial = o.number("initial_accumulator_value", 0.1)
    return Adagrad(lr, eps=o.number("eps", 1e-7), initial_accumulator_value=initial, eps_in_root=True)


def _adadelta(o: Options, lr: Any) -> Rule:
    o.only("weight_decay_mask", None)
    weight_decay = o.number("weight_decay", 0.0)
    return Adadelta(lr, rho=o.number("rho", 0.9), eps=o.number("eps", 1e-6), weight_decay=weight_decay)


def _adamax(o: Options, lr: Any, weight_decay: float | None = None) -> Rule:
    return Adamax(lr, **_moments(o), **({} if weight_decay is None else _decay(o, weight_decay)))


def _lion(o: Options, lr: Any) -> Rule:
    o.only("mu_dtype", None)
    return Lion(lr, beta1=o.number("b1", 0.9), beta2=o.number("b2", 0.99), **_decay(o, 1e-3))


def _lamb(o: Options, lr: Any) -> Rule:
    o.only("mask", None)
    return LAMB(lr, **_moments(o, eps=1e-6), weight_decay=o.number("weight_decay", 0.0))


def _yogi(o: Options, lr: Any) -> Rule:
    return Yogi(lr, beta1=o.number("b1", 0.9), beta2=o.number("b2", 0.999), eps=o.number("eps", 1e-3))


def _ademamix(o: Options, lr: Any) -> Rule:
    beta3, alpha = o.number("b3", 0.9999), o.number("alpha", 5.0)
    return AdEMAMix(lr, **_moments(o), beta3=beta3, alpha=alpha, **_decay(o))


def _simplified_ademamix(o: Options, lr: Any) -> Rule:
    moments = _moments(o, beta1=0.99, beta2=0.95)
    return SimplifiedAdEMAMix(lr, **moments, alpha=o.number("alpha", 0.0), **_decay(o))


def _adopt(o: Options, lr: Any) -> Rule:
    o.only("nesterov", False)
    o.only("use_clipping", True)
    return ADOPT(lr, **_moments(o, beta2=0.9999, eps=1e-6))


OPTAX: dict[str, Callable[[Options, Any], Rule]] = {
    "adadelta": _adadelta,
    "adagrad": _adagrad,
    "adam": _adam,
    "adamax": _adamax,
    "adamaxw": lambda o, lr: _adamax(o, lr, 1e-4),
    "adamw": lambda o, lr: _adam(o, lr, 1e-4),
    "ademamix": _ademamix,
    "adopt": _adopt,
    "lamb": _lamb,
    "lion": _lion,
    "nadam": lambda o, lr: _adam(o, lr, nesterov=True),
    "nadamw": lambda o, lr: _adam(o, lr, 1e-4, nesterov=True),
    "rmsprop": _rmsprop,
    "sgd": _sgd,
    "sign_sgd": lambda o, lr: SignSGD(lr, momentum=0.0),
    "simplified_ademamix": _simplified_ademamix,
    "yogi": _yogi,
}


def convert(name: str, options: Mapping[str, Any]) -> Rule:
    """The rule of an optax optimizer.

    Args:
        name: Its function in `optax` or `optax.contrib`.
        options: The arguments; `learning_rate` is a number, or a schedule as `{"name": function, "kwargs": arguments}`.

    Raises:
        ConfigurationError: An option has no equal, or the learning rate is missing.
    """
    o = Options(f"optax.{name}", options)
    rate = o.take("learning_rate")
    if isinstance(rate, Mapping):
        rate = schedule(rate)
    elif callable(rate):
        o.refuse("a schedule must be given by name and arguments, since a function cannot be looked into")
    elif rate is None:
        o.refuse("`learning_rate` must be given")
    rule = OPTAX[name](o, rate)
    o.finish()
    return rule
