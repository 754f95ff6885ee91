"""Puts the commands together and turns our errors into messages and exit codes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from edgeopt.cli.console import out, show_error, show_warning
from edgeopt.cli.evaluate import evaluate
from edgeopt.cli.export import export
from edgeopt.cli.export_inference import export_inference
from edgeopt.cli.inspect import inspect
from edgeopt.cli.predict import predict
from edgeopt.cli.quickstart import quickstart
from edgeopt.cli.train import train
from edgeopt.errors import EdgeoptError

__all__ = ["app", "run"]

DEBUG = "--debug"

app = typer.Typer(
    name="edgeopt",
    help="Export the training step of a model as ONNX graphs, and train them with stock ONNX Runtime.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
HELP = {"help_option_names": ["-h", "--help"]}
for command in (quickstart, export, train, evaluate, predict, export_inference, inspect):
    app.command(context_settings=HELP)(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        out.print(f"edgeopt {version('edgeopt')}")
        raise typer.Exit


@app.callback(context_settings=HELP)
def edgeopt(
    debug: Annotated[bool, typer.Option(DEBUG, help="Show Python's traceback of an error.")] = False,
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that come before the command; `run` has acted on --debug by then."""


def run(arguments: Sequence[str]) -> int:
    """Run one command. Returns 0, or 1 after an error of ours; wrong usage exits with 2, Ctrl-C with 130."""
    debug = DEBUG in arguments
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            app([argument for argument in arguments if argument != DEBUG], prog_name="edgeopt")
        except EdgeoptError as error:
            if debug:
                raise
            show_error(error)
            return 1
    return 0


def _show_warning(message: Warning | str, *place: object, **more: object) -> None:
    """Print a warning without the line of Python that it comes from."""
    show_warning(str(message))
