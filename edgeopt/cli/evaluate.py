"""`edgeopt evaluate`: loss and metrics on data."""

from __future__ import annotations

from edgeopt.cli.arrays import read_samples
from edgeopt.cli.console import out, print_json
from edgeopt.cli.options import BatchSize, BundlePath, Data, Json, Providers, Threads
from edgeopt.cli.results import print_results
from edgeopt_runtime import TrainingSession

__all__ = ["evaluate"]


def evaluate(
    bundle: BundlePath,
    data: Data,
    batch_size: BatchSize = None,
    provider: Providers = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Print the loss and the metrics of a bundle on the samples of an .npz file."""
    session = TrainingSession.load(bundle, providers=provider, threads=threads)
    samples = read_samples(data, session.signature)
    metrics = session.evaluate(samples.in_order(samples.batch_size(batch_size)))
    if as_json:
        print_json(metrics)
    else:
        print_results(out, metrics)
