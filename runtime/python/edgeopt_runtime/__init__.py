"""The device runtime of edgeopt: load a bundle, step, predict, save.

It needs numpy, onnxruntime and safetensors, and knows nothing of optimizers or gradients: a bundle's graphs hold them.
"""

from __future__ import annotations

from edgeopt_runtime.archive import BundleContents, pack_bundle, read_bundle, write_bundle
from edgeopt_runtime.errors import (
    BatchError,
    BundleError,
    EdgeoptError,
    ExecutionError,
    ForeignBundleError,
    GraphError,
    HyperparameterError,
    ManifestError,
    NonFiniteLossError,
    ProviderError,
    StateError,
    StorageError,
    TamperedBundleError,
    TruncatedBundleError,
    UnsupportedVersionError,
)
from edgeopt_runtime.fit import FitInfo, History, StopTraining
from edgeopt_runtime.manifest import Manifest
from edgeopt_runtime.session import TrainingSession

__all__ = [
    "BatchError",
    "BundleContents",
    "BundleError",
    "EdgeoptError",
    "ExecutionError",
    "FitInfo",
    "ForeignBundleError",
    "GraphError",
    "History",
    "HyperparameterError",
    "Manifest",
    "ManifestError",
    "NonFiniteLossError",
    "ProviderError",
    "StateError",
    "StopTraining",
    "StorageError",
    "TamperedBundleError",
    "TrainingSession",
    "TruncatedBundleError",
    "UnsupportedVersionError",
    "__version__",
    "pack_bundle",
    "read_bundle",
    "write_bundle",
]

__version__ = "0.1.0"
