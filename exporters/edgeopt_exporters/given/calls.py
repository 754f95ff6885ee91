"""Calls whose arguments fit no parameter, answered with what to give instead."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeVar

from edgeopt.components import did_you_mean
from edgeopt.errors import ConfigurationError

__all__ = ["INSTEAD", "answered"]

P = ParamSpec("P")
R = TypeVar("R")

# Arguments that torch.onnx.export, Keras and transformers have for what is given otherwise here.
_RATE = "the rate is the optimizer's: optimizer=edgeopt.optimizers.AdamW(lr=1e-3)"
_DEVICE = "it belongs to training, on the device: TrainingSession.load(path).fit(batches, epochs=...)"
_NAMES = "inputs are called as the parameters of forward, outputs as session.manifest.outputs says"
_PATH = 'bundle.save("model.edgeopt") writes what export returns'
INSTEAD = {
    "args": "give example_inputs=",
    "batch_size": _DEVICE,
    "clip_grad_norm": "give transforms=edgeopt.transforms.ClipByGlobalNorm(...)",
    "criterion": "give loss=",
    "dynamic_axes": "give dynamic_shapes={'tokens': {1: 'sequence'}}; axis 0 is symbolic anyway",
    "epochs": _DEVICE,
    "example_input": "give example_inputs=",
    "f": _PATH,
    "input_names": _NAMES,
    "inputs": "give example_inputs=",
    "kwargs": "give example_inputs= as a dict by the names of forward",
    "learning_rate": _RATE,
    "loss_fn": "give loss=",
    "loss_function": "give loss=",
    "lr": _RATE,
    "lr_scheduler": _RATE,
    "max_grad_norm": "give transforms=edgeopt.transforms.ClipByGlobalNorm(...)",
    "opset_version": "every bundle has the opset that its oldest ONNX Runtime knows, which bundle.manifest says",
    "output_names": _NAMES,
    "params": "give trainable= and patterns of parameter names",
    "path": _PATH,
    "sample_inputs": "give example_inputs=",
    "schedule": _RATE,
    "scheduler": _RATE,
}


def answered(instead: Mapping[str, str], needed: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function raise a `ConfigurationError` where Python would raise a `TypeError` about its arguments.

    Args:
        instead: What to give in place of an argument that the function does not have.
        needed: An example of each argument that has no default.
    """

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise ConfigurationError(
                    _answer(function.__name__, signature, args, kwargs, instead, needed)
                ) from error
            return function(*args, **kwargs)

        return call

    return wrap


def _answer(
    name: str,
    signature: inspect.Signature,
    args: Sequence[object],
    given: Mapping[str, object],
    instead: Mapping[str, str],
    needed: Mapping[str, str],
) -> str:
    parameters = signature.parameters
    for argument in given:
        if argument in parameters:
            continue
        if argument in instead:
            return f"{name} has no argument {argument!r}: {instead[argument]}."
        return (
            f"{name} has no argument {argument!r}{did_you_mean(argument, parameters)} It has {', '.join(parameters)}."
        )
    try:
        bound = signature.bind_partial(*args, **given).arguments
    except TypeError:
        by_place = [key for key, one in parameters.items() if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        others = ", ".join(f"{key}={example}" for key, example in needed.items() if key not in by_place)
        return f"{name} takes {' and '.join(by_place)} by place, once, and all else by name: {others}."
    missing = [f"{argument}={example}" for argument, example in needed.items() if argument not in bound]
    return f"{name} needs {' and '.join(missing)}."
