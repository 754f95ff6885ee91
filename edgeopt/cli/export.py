"""`edgeopt export`: from a function that builds a PyTorch model to a bundle."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import edgeopt
from edgeopt.cli.components import build
from edgeopt.cli.console import err, format_bytes, out
from edgeopt.cli.errors import CommandError
from edgeopt.cli.inspect import size_of
from edgeopt.losses import LOSSES
from edgeopt.metrics import METRICS
from edgeopt.optimizers import OPTIMIZERS
from edgeopt.schedules import SCHEDULES
from edgeopt.transforms import TRANSFORMS

__all__ = ["export"]

# What --loss, --optimizer and the like take.
COMPONENT = "NAME:KEY=VALUE"


def export(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="A function without arguments that returns the model and its example inputs. "
            "Modules of the current folder are found.",
        ),
    ],
    output: Annotated[Path, typer.Option("--out", help="The bundle to write.")],
    loss: Annotated[str, typer.Option(metavar=COMPONENT, help=f"{', '.join(sorted(LOSSES))}.")],
    optimizer: Annotated[
        str,
        typer.Option(metavar=COMPONENT, help="sgd:momentum=0.9,nesterov=true and the like. A wrong name lists all."),
    ] = "adamw",
    lr: Annotated[float, typer.Option(help="The learning rate, or the schedule's peak.")] = 1e-3,
    schedule: Annotated[
        str,
        typer.Option(metavar=COMPONENT, help="warmup_cosine:warmup=9,total=99 and the like. A wrong name lists all."),
    ] = "constant",
    transform: Annotated[
        list[str] | None,
        typer.Option(metavar=COMPONENT, help=f"{', '.join(sorted(TRANSFORMS))}. Repeat for several, in order."),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(metavar=COMPONENT, help=f"{', '.join(sorted(METRICS))}. Repeat for several.")
    ] = None,
    trainable: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Parameters to train, as in 'classifier.*'. Repeat for several."),
    ] = None,
    fixed_batch: Annotated[
        bool, typer.Option("--fixed-batch", help="Keep the batch size of the example inputs, for NPUs that need it.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Start of the random numbers that dropout draws.")] = 0,
) -> None:
    """Export the training step of a PyTorch model as a bundle."""
    module, example_inputs = _build_model(model)
    chosen_schedule = build("schedule", SCHEDULES, schedule, lr=lr)
    with err.status("exporting"):
        bundle = edgeopt.export(
            module,
            example_inputs,
            loss=build("loss", LOSSES, loss),
            optimizer=build("optimizer", OPTIMIZERS, optimizer, lr=chosen_schedule),
            transforms=[build("transform", TRANSFORMS, text) for text in transform or ()],
            metrics=[build("metric", METRICS, text) for text in metric or ()],
            trainable=trainable,
            dynamic_batch=not fixed_batch,
            seed=seed,
        )
        bundle.save(output)
    parameters = [spec for spec in bundle.manifest.tensors if spec.role == "parameter"]
    trained = sum(spec.trainable for spec in parameters)
    out.print(f"wrote {output}: {format_bytes(size_of(output))}, {trained} of {len(parameters)} parameters train")


def _build_model(spec: str) -> tuple[Any, Any]:
    """Import and call the user's function; what goes wrong inside it keeps its own traceback."""
    module_name, colon, function_name = spec.partition(":")
    if not (module_name and colon and function_name):
        raise typer.BadParameter(f"{spec!r} does not look like module:function", param_hint="MODULE:FUNCTION")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise CommandError(f"There is no module {error.name!r}, neither here nor among the installed ones.") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise CommandError(f"The module {module_name!r} has no function {function_name!r}.")
    result = function()
    if not isinstance(result, tuple) or len(result) != 2:
        raise CommandError(f"{spec} must return the model and its example inputs, not a {type(result).__name__}.")
    return result
