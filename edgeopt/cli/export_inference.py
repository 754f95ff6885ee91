"""`edgeopt export-inference`: the model of a bundle as a plain ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgeopt.cli.console import format_bytes, out
from edgeopt.cli.options import BundlePath
from edgeopt.cli.output import check_file_output
from edgeopt_runtime import TrainingSession

__all__ = ["export_inference"]


def export_inference(
    bundle: BundlePath,
    output: Annotated[Path, typer.Option("--out", metavar="FILE.onnx", help="The file to write.")],
    merge: Annotated[bool, typer.Option(help="Make adapters part of the weights that they are for.")] = True,
) -> None:
    """Write the model of a bundle, with its weights as they are now, as a plain ONNX file."""
    check_file_output(output)
    TrainingSession.load(bundle).export_inference(output, merge=merge)
    out.print(f"wrote {output}: {format_bytes(output.stat().st_size)}")
