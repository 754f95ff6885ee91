"""edgeopt: train models with the ONNX Runtime that devices already have.

`edgeopt.export` turns a model into a bundle: the whole training step as ordinary ONNX graphs, and the state they work
on. `edgeopt_runtime.TrainingSession` trains it anywhere. Names are imported when first used, so that importing the
package costs nothing on a device.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeopt import bilevel, bundle, compat, errors, losses, metrics, optimizers, schedules, testing, transforms
    from edgeopt.bundle import Bundle
    from edgeopt.derivatives import gradient, hessian_vector
    from edgeopt_exporters.export import export

__all__ = [
    "Bundle",
    "bilevel",
    "bundle",
    "compat",
    "errors",
    "export",
    "gradient",
    "hessian_vector",
    "losses",
    "metrics",
    "optimizers",
    "schedules",
    "testing",
    "transforms",
]

_LAZY = {
    "Bundle": "edgeopt.bundle",
    "export": "edgeopt_exporters.export",
    "gradient": "edgeopt.derivatives",
    "hessian_vector": "edgeopt.derivatives",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in __all__:
        return import_module(f"edgeopt.{name}")
    raise AttributeError(f"module 'edgeopt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
