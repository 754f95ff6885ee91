"""`edgeopt export`: from an ONNX file, or a function that builds a PyTorch model, to a bundle."""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import edgeopt
from edgeopt.adapters import ADAPTER, ADAPTERS
from edgeopt.cli.components import build_all
from edgeopt.cli.console import err, format_bytes, out
from edgeopt.cli.decisions import print_decisions
from edgeopt.cli.errors import CommandError
from edgeopt.cli.options import named_sizes
from edgeopt.cli.output import check_bundle_output, size_of
from edgeopt.cli.recipes import Words
from edgeopt.errors import ExportWarning
from edgeopt.losses import LOSSES
from edgeopt.metrics import METRICS
from edgeopt.quantization import FORMATS
from edgeopt.tasks import TASKS
from edgeopt.transforms import TRANSFORMS

__all__ = ["export"]

# What --loss, --optimizer and the like take.
COMPONENT = "NAME:KEY=VALUE"


class FrozenWeights(str, Enum):
    """How weights that do not train are stored."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"
    INT4 = "int4"
    NF4 = "nf4"


class BatchNorm(str, Enum):
    """Whose statistics normalisations use in training."""

    AUTO = "auto"
    FILE = "file"
    FROZEN = "frozen"
    TRAIN = "train"


def export(
    model: Annotated[
        str,
        typer.Argument(
            metavar="FILE.onnx|MODULE:FUNCTION",
            help="An ONNX file, or a function without arguments that returns a PyTorch model and its example inputs. "
            "Modules of the current folder are found.",
        ),
    ],
    output: Annotated[Path, typer.Option("--out", help="The bundle to write.")],
    task: Annotated[
        str | None,
        typer.Option(
            metavar=COMPONENT,
            help=f"What the others default to: {', '.join(sorted(TASKS))}.",
        ),
    ] = None,
    loss: Annotated[
        str | None, typer.Option(metavar=COMPONENT, help=f"{', '.join(sorted(LOSSES))}. Needed without --task.")
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(
            metavar=COMPONENT,
            help="sgd:momentum=0.9,nesterov=true and the like. A wrong name lists all. Default: adamw.",
        ),
    ] = None,
    optimizer_state: Annotated[
        str | None,
        typer.Option(metavar="FORMAT", help=f"How its state is kept: {', '.join(FORMATS)}. Default: as it is."),
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="The learning rate, or the schedule's peak. Default: the optimizer's own.")
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            metavar=COMPONENT,
            help="warmup_cosine:warmup_steps=9,total_steps=99 and the like; default: constant.",
        ),
    ] = None,
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
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            "--adapter",
            "--adapters",
            metavar=COMPONENT,
            help=f"What trains in place of the model: {', '.join(sorted(ADAPTERS))}. Repeat for several.",
        ),
    ] = None,
    frozen_weights: Annotated[
        FrozenWeights, typer.Option(help="How large weights that do not train are stored; the graphs decode them.")
    ] = FrozenWeights.FLOAT32,
    fixed_batch: Annotated[
        bool, typer.Option("--fixed-batch", help="Keep the batch size of the example inputs, for NPUs that need it.")
    ] = False,
    loss_input: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The output that the loss reads, the first by default; any tensor of a file."
        ),
    ] = None,
    batch_norm: Annotated[
        BatchNorm,
        typer.Option(help="The statistics of BatchNorm in training: running ones where nothing trains, or as it says."),
    ] = BatchNorm.AUTO,
    fixed_input: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Of a file: an input that never changes. Repeat for several."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Start of the random numbers that dropout draws.")] = 0,
    memory_budget_mb: Annotated[
        float | None,
        typer.Option(metavar="MIB", help="What training may take: recomputation and microbatches are chosen to fit."),
    ] = None,
    memory_size: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=SIZE", help="For the budget: batch=32. Default: as in the examples."),
    ] = None,
    freeze_to_fit: Annotated[
        bool, typer.Option("--freeze-to-fit", help="For the budget: fewer parameters may train, the last ones.")
    ] = False,
    check: Annotated[bool, typer.Option(help="Compare the finished graphs with the model.")] = True,
) -> None:
    """Export the training step of an ONNX file or a PyTorch model as a bundle."""
    check_bundle_output(output)
    settings = Words(task, loss, metric, transform, optimizer, lr, schedule, optimizer_state).settings()
    adapters = build_all(ADAPTER, adapter)
    source, example_inputs = (Path(model), None) if _is_file(model) else _build_model(model)
    with err.status("exporting"), warnings.catch_warnings():
        # They are among the decisions, which are printed below.
        warnings.simplefilter("ignore", ExportWarning)
        bundle = edgeopt.export(
            source,
            example_inputs,
            **settings,
            trainable=trainable,
            adapters=adapters,
            dynamic_batch=not fixed_batch,
            output=loss_input,
            batch_norm=batch_norm.value,
            frozen_weights=frozen_weights.value,
            fixed_inputs=dict(map(_fixed_input, fixed_input)) if fixed_input else None,
            seed=seed,
            memory_budget_mb=memory_budget_mb,
            memory_sizes=named_sizes(memory_size) if memory_size else None,
            freeze_to_fit=freeze_to_fit,
            check=check,
            verbose=False,
        )
        bundle.save(output)
    print_decisions(bundle.decisions, err)
    parameters = [spec for spec in bundle.manifest.tensors if spec.role == "parameter"]
    trained = sum(spec.trainable for spec in parameters)
    out.print(f"wrote {output}: {format_bytes(size_of(output))}, {trained} of {len(parameters)} parameters train")


def _is_file(spec: str) -> bool:
    return spec.endswith(".onnx")


def _fixed_input(text: str) -> tuple[str, Any]:
    """A name and the array behind it, written as in JSON."""
    name, _, value = text.partition("=")
    try:
        return name, np.asarray(json.loads(value))
    except json.JSONDecodeError as error:
        raise typer.BadParameter(f"{text!r} does not look like NAME=VALUE", param_hint="--fixed-input") from error


def _build_model(spec: str) -> tuple[Any, Any]:
    """Import and call the user's function; what goes wrong inside it keeps its own traceback."""
    module_name, colon, function_name = spec.partition(":")
    if not (module_name and colon and function_name):
        raise typer.BadParameter(f"{spec!r} does not look like module:function or file.onnx", param_hint="MODEL")
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
