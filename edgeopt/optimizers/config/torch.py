"""Optimizers of torch.optim (2.4 to 2.15), by class name and options as in `defaults` or a parameter group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edgeopt.optimizers.base import Rule
from edgeopt.optimizers.config.options import Options
from edgeopt.optimizers.config.torch_schedules import schedule
from edgeopt.optimizers.rules.adaptive.adagrad import Adadelta, Adagrad
from edgeopt.optimizers.rules.adaptive.adam import Adam, AdamW
from edgeopt.optimizers.rules.adaptive.adamax import Adamax
from edgeopt.optimizers.rules.adaptive.nadam import NAdam
from edgeopt.optimizers.rules.adaptive.radam import RAdam
from edgeopt.optimizers.rules.adaptive.rmsprop import RMSprop
from edgeopt.optimizers.rules.descent import Decay
from edgeopt.optimizers.rules.lean.factored import Adafactor
from edgeopt.optimizers.rules.matrix.muon import Muon
from edgeopt.optimizers.rules.sgd.asgd import ASGD
from edgeopt.optimizers.rules.sgd.rprop import Rprop
from edgeopt.optimizers.rules.sgd.sgd import SGD

__all__ = ["TORCH", "convert"]

# How the update is computed, not what; `params` and `param_names` are whose it is; `initial_lr` is left by a scheduler.
IGNORED = ("foreach", "fused", "capturable", "differentiable", "params", "param_names", "initial_lr")


def _common(o: Options, weight_decay: float = 0.0) -> dict[str, Any]:
    return {"weight_decay": o.number("weight_decay", weight_decay), "maximize": o.flag("maximize")}


def _place(o: Options) -> Decay:
    return "before" if o.flag("decoupled_weight_decay") else "gradient"


def _moments(o: Options) -> dict[str, Any]:
    beta1, beta2 = o.pair("betas", (0.9, 0.999))
    return {"beta1": float(beta1), "beta2": float(beta2), "eps": o.number("eps", 1e-8)}


def _sgd(o: Options, lr: Any) -> Rule:
    return SGD(
        lr,
        momentum=o.number("momentum", 0.0),
        dampening=o.number("dampening", 0.0),
        nesterov=o.flag("nesterov"),
        **_common(o),
    )


def _adam(o: Options, lr: Any) -> Rule:
    return Adam(lr, **_moments(o), amsgrad=o.flag("amsgrad"), decay=_place(o), **_common(o))


def _adamw(o: Options, lr: Any) -> Rule:
    o.only("decoupled_weight_decay", True)
    return AdamW(lr, **_moments(o), amsgrad=o.flag("amsgrad"), **_common(o, 1e-2))


def _adamax(o: Options, lr: Any) -> Rule:
    return Adamax(lr, **_moments(o), **_common(o))


def _nadam(o: Options, lr: Any) -> Rule:
    decay = o.number("momentum_decay", 4e-3)
    return NAdam(lr, **_moments(o), momentum_decay=decay, decay=_place(o), **_common(o))


def _radam(o: Options, lr: Any) -> Rule:
    return RAdam(lr, **_moments(o), decay=_place(o), **_common(o))


def _rmsprop(o: Options, lr: Any) -> Rule:
    return RMSprop(
        lr,
        alpha=o.number("alpha", 0.99),
        eps=o.number("eps", 1e-8),
        momentum=o.number("momentum", 0.0),
        centered=o.flag("centered"),
        **_common(o),
    )


def _adagrad(o: Options, lr: Any) -> Rule:
    return Adagrad(
        lr,
        lr_decay=o.number("lr_decay", 0.0),
        eps=o.number("eps", 1e-10),
        initial_accumulator_value=o.number("initial_accumulator_value", 0.0),
        **_common(o),
    )


def _adadelta(o: Options, lr: Any) -> Rule:
    return Adadelta(lr, rho=o.number("rho", 0.9), eps=o.number("eps", 1e-6), **_common(o))


def _rprop(o: Options, lr: Any) -> Rule:
    minus, plus = o.pair("etas", (0.5, 1.2))
    least, most = o.pair("step_sizes", (1e-6, 50.0))
    etas, sizes = (float(minus), float(plus)), (float(least), float(most))
    return Rprop(lr, etas=etas, step_sizes=sizes, maximize=o.flag("maximize"))


def _asgd(o: Options, lr: Any) -> Rule:
    lambd, alpha, t0 = o.number("lambd", 1e-4), o.number("alpha", 0.75), o.number("t0", 1e6)
    return ASGD(lr, lambd=lambd, alpha=alpha, t0=t0, **_common(o))


def _adafactor(o: Options, lr: Any) -> Rule:
    eps1, eps2 = o.pair("eps", (None, 1e-3))
    return Adafactor(
        lr,
        beta2_decay=o.number("beta2_decay", -0.8),
        eps1=None if eps1 is None else float(eps1),
        eps2=float(eps2),
        d=o.number("d", 1.0),
        **_common(o),
    )


def _muon(o: Options, lr: Any) -> Rule:
    first, second, third = o.take("ns_coefficients", (3.4445, -4.775, 2.0315))
    return Muon(
        lr,
        momentum=o.number("momentum", 0.95),
        eps=o.number("eps", 1e-7),
        nesterov=o.flag("nesterov", True),
        ns_coefficients=(float(first), float(second), float(third)),
        ns_steps=o.count("ns_steps", 5),
        adjust_lr_fn=o.take("adjust_lr_fn") or "original",
        weight_decay=o.number("weight_decay", 0.1),
    )


# Converter, and torch's own learning rate.
TORCH: dict[str, tuple[Callable[[Options, Any], Rule], float]] = {
    "ASGD": (_asgd, 1e-2),
    "Adadelta": (_adadelta, 1.0),
    "Adafactor": (_adafactor, 1e-2),
    "Adagrad": (_adagrad, 1e-2),
    "Adam": (_adam, 1e-3),
    "AdamW": (_adamw, 1e-3),
    "Adamax": (_adamax, 2e-3),
    "Muon": (_muon, 1e-3),
    "NAdam": (_nadam, 2e-3),
    "RAdam": (_radam, 1e-3),
    "RMSprop": (_rmsprop, 1e-2),
    "Rprop": (_rprop, 1e-2),
    "SGD": (_sgd, 1e-3),
}


def convert(name: str, options: Mapping[str, Any], scheduler: Mapping[str, Any] | None = None) -> Rule:
    """The rule of a torch optimizer.

    Args:
        name: Its class.
        options: Its options; those that are left out have torch's defaults.
        scheduler: `{"name": a class of torch.optim.lr_scheduler, "kwargs": its arguments}`; its rate starts from the
            option `initial_lr` where a scheduler has left one, and from `lr` otherwise.

    Raises:
        ConfigurationError: An option has no equal.
    """
    build, default = TORCH[name]
    start = {"lr": options["initial_lr"]} if scheduler is not None and "initial_lr" in options else {}
    o = Options(f"torch.optim.{name}", {**options, **start}, IGNORED)
    lr = o.number("lr", default)
    rule = build(o, lr if scheduler is None else schedule(scheduler, lr))
    o.finish()
    return rule
