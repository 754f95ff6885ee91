"""edgeopt: train models with the ONNX Runtime that devices already have.

`edgeopt.export` turns a model into a bundle: the whole training step as ordinary ONNX graphs, and the state they work
on. `edgeopt_runtime.TrainingSession` trains it anywhere. Names are imported when first used, so that importing the
package costs nothing on a device.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeopt import (
        adapters,
        bilevel,
        bundle,
        compat,
        errors,
        graph,
        losses,
        metrics,
        optimizers,
        schedules,
        tasks,
        testing,
        transforms,
    )
    from edgeopt.bundle import Bundle
    from edgeopt.derivatives import gradient, hessian_vector
    from edgeopt.images import Images
    from edgeopt_exporters.export import export
    from edgeopt_runtime import TrainingSession, __version__

__all__ = [
    "Bundle",
    "Images",
    "TrainingSession",
    "__version__",
    "adapters",
    "bilevel",
    "bundle",
    "compat",
    "errors",
    "export",
    "gradient",
    "graph",
    "hessian_vector",
    "losses",
    "metrics",
    "optimizers",
    "schedules",
    "tasks",
    "testing",
    "transforms",
]

_LAZY = {
    "Bundle": "edgeopt.bundle",
    "Images": "edgeopt.images",
    "TrainingSession": "edgeopt_runtime",
    "__version__": "edgeopt_runtime",
    "export": "edgeopt_exporters.export",
    "gradient": "edgeopt.derivatives",
    "hessian_vector": "edgeopt.derivatives",
}

# Names of other libraries, and what to use here.
_INSTEAD = {
    "load": "edgeopt.TrainingSession.load(path) trains a bundle, edgeopt.Bundle.load(path) reads one to look into it",
    "save": "bundle.save(path) and session.save(path) write bundles",
    "optim": "optimizers are in edgeopt.optimizers",
    "nn": "losses are in edgeopt.losses",
    "lr_scheduler": "schedules are in edgeopt.schedules",
    "callbacks": "callbacks are in edgeopt_runtime.callbacks, ReduceLROnPlateau and GreedyLR in edgeopt_runtime",
    "train": "edgeopt.TrainingSession.load(path).fit(batches) trains",
    "Session": "edgeopt.TrainingSession trains a bundle",
    "Trainer": "edgeopt.TrainingSession trains a bundle",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in __all__:
        return import_module(f"edgeopt.{name}")
    from edgeopt_runtime.calls import no_attribute

    raise no_attribute("edgeopt", name, _INSTEAD)


def __dir__() -> list[str]:
    return sorted(__all__)
