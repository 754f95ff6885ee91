"""The device runtime of edgeopt: load a bundle, step, predict, save.

It needs numpy, onnxruntime and safetensors, and knows nothing of optimizers or gradients: a bundle's graphs hold them.
Names are imported when they are first used, so that a program that only needs the errors, or the manifest, does not
wait for onnxruntime.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeopt_runtime.archive import BundleContents, pack_bundle, read_bundle, write_bundle
    from edgeopt_runtime.errors import (
        AdapterError,
        BatchError,
        BundleError,
        CallbackError,
        EdgeoptError,
        ExecutionError,
        ForeignBundleError,
        GraphError,
        HyperparameterError,
        ManifestError,
        MinimizeError,
        MissingGraphError,
        NonFiniteLossError,
        ProviderError,
        StateError,
        StorageError,
        TamperedBundleError,
        TruncatedBundleError,
        UnsupportedVersionError,
        WeightsError,
    )
    from edgeopt_runtime.fit import FitInfo, History, StopTraining
    from edgeopt_runtime.manifest import Manifest
    from edgeopt_runtime.minimize import MinimizeResult
    from edgeopt_runtime.rates import GreedyLR, ReduceLROnPlateau
    from edgeopt_runtime.schedule_watch import ScheduleEndWarning
    from edgeopt_runtime.session import TrainingSession
    from edgeopt_runtime.transfer import WeightReport

__all__ = [
    "AdapterError",
    "BatchError",
    "BundleContents",
    "BundleError",
    "CallbackError",
    "EdgeoptError",
    "ExecutionError",
    "FitInfo",
    "ForeignBundleError",
    "GraphError",
    "GreedyLR",
    "History",
    "HyperparameterError",
    "Kernels",
    "Manifest",
    "ManifestError",
    "MinimizeError",
    "MinimizeResult",
    "MissingGraphError",
    "NonFiniteLossError",
    "ProviderError",
    "ReduceLROnPlateau",
    "ScheduleEndWarning",
    "StateError",
    "StopTraining",
    "StorageError",
    "TamperedBundleError",
    "TrainingSession",
    "TruncatedBundleError",
    "UnsupportedVersionError",
    "WeightReport",
    "WeightsError",
    "__version__",
    "pack_bundle",
    "read_bundle",
    "write_bundle",
]

__version__ = "0.1.0"

# Where each name lives; those not listed are errors.
_HOMES = {
    "BundleContents": "archive",
    "FitInfo": "fit",
    "GreedyLR": "rates",
    "History": "fit",
    "Kernels": "kernels",
    "Manifest": "manifest",
    "MinimizeResult": "minimize",
    "ReduceLROnPlateau": "rates",
    "ScheduleEndWarning": "schedule_watch",
    "StopTraining": "fit",
    "TrainingSession": "session",
    "WeightReport": "transfer",
    "pack_bundle": "archive",
    "read_bundle": "archive",
    "write_bundle": "archive",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
