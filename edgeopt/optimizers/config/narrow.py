"""Optimizers of bitsandbytes (0.45 to 0.50) and torchao (0.12 to 0.18), which keep their state in fewer bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edgeopt.optimizers.base import Optimizer, Rule
from edgeopt.optimizers.config.options import Options
from edgeopt.optimizers.rules.adaptive.adagrad import Adagrad
from edgeopt.optimizers.rules.adaptive.adam import Adam, AdamW
from edgeopt.optimizers.rules.adaptive.ademamix import AdEMAMix
from edgeopt.optimizers.rules.adaptive.rmsprop import RMSprop
from edgeopt.optimizers.rules.sgd.sgd import SGD
from edgeopt.optimizers.rules.sgd.sign import Lion
from edgeopt.optimizers.wrappers.quantized_state import QuantizedState
from edgeopt.quantization import FORMATS

__all__ = ["PACKAGES", "convert"]

#: The packages whose optimizers are read here.
PACKAGES = ("bitsandbytes", "torchao")

IGNORED = ("params", "param_names", "initial_lr")

# By class of torchao; the blocks are those that it takes by itself.
_TORCHAO = {
    "Adam4bit": ("int4", 128),
    "Adam8bit": ("int8_dynamic", 256),
    "AdamFp8": ("fp8_e4m3", 256),
    "AdamW4bit": ("int4", 128),
    "AdamW8bit": ("int8_dynamic", 256),
    "AdamWFp8": ("fp8_e4m3", 256),
}


def convert(optimizer: Any, groups: Sequence[Mapping[str, Any]]) -> list[Optimizer]:
    """The rule of each parameter group.

    Args:
        optimizer: The optimizer.
        groups: Its parameter groups.

    Raises:
        ConfigurationError: There is no rule of the same formula, or a setting has no equal.
    """
    owner = f"{type(optimizer).__module__.partition('.')[0]}.optim.{type(optimizer).__name__}"
    if owner.startswith("torchao"):
        return [_torchao(owner, optimizer, group) for group in groups]
    return [_bitsandbytes(owner, optimizer, group) for group in groups]


def _torchao(owner: str, optimizer: Any, group: Mapping[str, Any]) -> Optimizer:
    o = Options(owner, group, IGNORED)
    if type(optimizer).__name__ not in _TORCHAO:
        o.refuse(f"those of {', '.join(_TORCHAO)} have an equal here")
    state, block = _TORCHAO[type(optimizer).__name__]
    if optimizer.block_size != block:
        o.refuse(f"blocks have {block} elements here, not {optimizer.block_size}")
    if optimizer.bf16_stochastic_round:
        o.refuse("parameters are not rounded at random here; their state can be, with the format bf16_stochastic")
    rule = AdamW if optimizer.is_adamw else Adam
    made = rule(o.number("lr"), **_betas(o, 2), **_common(o), amsgrad=o.flag("amsgrad"))
    o.finish()
    return QuantizedState(made, state)


def _bitsandbytes(owner: str, optimizer: Any, group: Mapping[str, Any]) -> Optimizer:
    o = Options(owner, group, IGNORED)
    settings = optimizer.args
    if optimizer.mng.pid2config.keys() & {id(param) for param in group["params"]}:
        o.refuse('some parameters have settings of their own; say so with state={"embedding.*": None, "*": "int8"}')
    if optimizer.optimizer_name not in _BITSANDBYTES:
        o.refuse(
            "its trust ratio is a bound on norms in 32 bits and nothing in 8 bits; give edgeopt.optimizers.LAMB8bit"
        )
    if settings.skip_zeros:
        o.refuse("skip_zeros=True, by which elements without a gradient rest, has no equal here")
    if settings.max_unorm > 0.0:
        o.refuse(f"max_unorm={settings.max_unorm} has no equal here")
    rule = _BITSANDBYTES[optimizer.optimizer_name](o)
    # What others of its optimizers have.
    for name in ("alpha", "t_alpha", "t_beta3", "eps", "betas"):
        o.take(name)
    o.finish()
    if settings.optim_bits != 8:
        return rule
    state = FORMATS["int8_dynamic"]
    default = settings.min_8bit_size == state.smallest
    return QuantizedState(rule, "int8_dynamic" if default else state._replace(smallest=settings.min_8bit_size))


def _common(o: Options) -> dict[str, Any]:
    return {"eps": o.number("eps"), "weight_decay": o.number("weight_decay")}


def _betas(o: Options, count: int) -> dict[str, Any]:
    betas = tuple(o.take("betas"))
    return {f"beta{place + 1}": float(betas[place]) for place in range(count)}


def _adamw(o: Options) -> Rule:
    # Adam, too, decays apart from the gradient there.
    return AdamW(o.number("lr"), **_betas(o, 2), **_common(o))


def _ademamix(o: Options) -> Rule:
    times = {float(o.take(name) or 0.0) for name in ("t_alpha", "t_beta3")}
    if len(times) > 1:
        o.refuse("t_alpha and t_beta3 are one number here, t_alpha_beta3")
    mixing: dict[str, Any] = {"alpha": o.number("alpha"), "t_alpha_beta3": times.pop()}
    return AdEMAMix(o.number("lr"), **mixing, **_betas(o, 3), **_common(o))


def _lion(o: Options) -> Rule:
    return Lion(o.number("lr"), **_betas(o, 2), weight_decay=o.number("weight_decay"))


def _sgd(o: Options) -> Rule:
    # Its second number is the dampening, which it does not use.
    return SGD(o.number("lr"), momentum=_betas(o, 1)["beta1"], weight_decay=o.number("weight_decay"))


def _rmsprop(o: Options) -> Rule:
    return RMSprop(o.number("lr"), alpha=_betas(o, 1)["beta1"], **_common(o))


def _adagrad(o: Options) -> Rule:
    return Adagrad(o.number("lr"), **_common(o))


# By the name of the formula in bitsandbytes.
_BITSANDBYTES: dict[str, Callable[[Options], Rule]] = {
    "adagrad": _adagrad,
    "adam": _adamw,
    "ademamix": _ademamix,
    "lion": _lion,
    "momentum": _sgd,
    "rmsprop": _rmsprop,
}
