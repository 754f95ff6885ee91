"""`edgeopt predict`: the model's outputs for data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from edgeopt.cli.arrays import read_samples, write_arrays
from edgeopt.cli.console import out
from edgeopt.cli.options import BatchSize, BundlePath, Data, Providers, Threads
from edgeopt.cli.output import check_file_output
from edgeopt_runtime import TrainingSession

__all__ = ["predict"]


def predict(
    bundle: BundlePath,
    data: Data,
    output: Annotated[Path, typer.Option("--out", help="The .npz file to write, one array for each output.")],
    batch_size: BatchSize = None,
    provider: Providers = None,
    threads: Threads = None,
) -> None:
    """Write the model's outputs for the samples of an .npz file."""
    check_file_output(output)
    session = TrainingSession.load(bundle, providers=provider, threads=threads)
    samples = read_samples(data, [spec for spec in session.signature if spec.kind == "model"])
    names = [spec.name for spec in session.manifest.outputs]
    batches = []
    for batch in samples.in_order(samples.batch_size(batch_size)):
        result = session.predict(batch)
        batches.append(result if isinstance(result, dict) else {names[0]: result})
    arrays = {name: np.concatenate([outputs[name] for outputs in batches]) for name in names}
    write_arrays(output, arrays)
    shapes = ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in arrays.items())
    out.print(f"wrote {output}: {shapes}")
