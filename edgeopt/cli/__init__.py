"""The command line: quickstart, export, train, evaluate, predict, export-inference, inspect."""

from __future__ import annotations

import sys

__all__ = ["main"]

# What the command line needs beyond the base install.
REQUIREMENTS = ("typer", "rich")


def main() -> None:
    """Run the `edgeopt` command on the arguments of this process and exit with its status."""
    try:
        from edgeopt.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in REQUIREMENTS:
            raise
        sys.exit(
            "The edgeopt command comes with the export extra, which is not installed here:\n\n"
            '    pip install "edgeopt[export]"\n\n'
            "The base install is the device runtime: `from edgeopt_runtime import TrainingSession`."
        )
    sys.exit(run(sys.argv[1:]))
