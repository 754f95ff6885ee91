"""Everything the runtime raises on purpose.

The codes are the same in every language's runtime, so that an app can act on them and a log line can be looked up.

::

    EdgeoptError                         E000
    ├── BundleError                      E100  the bundle cannot be used
    │   ├── TruncatedBundleError         E101  a file is missing or ends early
    │   ├── ForeignBundleError           E102  this is no edgeopt bundle
    │   ├── TamperedBundleError          E103  the contents differ from what the manifest promises
    │   ├── UnsupportedVersionError      E104  made for a newer runtime or a newer ONNX Runtime
    │   ├── ManifestError                E105  a field of manifest.json is missing or makes no sense
    │   └── GraphError                   E106  ONNX Runtime refuses a graph, or it differs from its signature
    ├── BatchError                       E110  a batch does not fit the model's inputs
    ├── NonFiniteLossError               E120  the loss, or what was to be written, became infinite or NaN
    ├── ExecutionError                   E121  ONNX Runtime failed while running a graph
    ├── ProviderError                    E130  an execution provider is not available or did not start
    ├── HyperparameterError              E140  no such hyperparameter, or no such value
    ├── StateError                       E150  the session or its tensors do not allow this now
    │   ├── MissingGraphError            E151  the bundle lacks a graph that the call needs
    │   └── WeightsError                 E152  weights are not those of this model; all that differs is listed
    ├── StorageError                     E160  nothing could be written; what was there before is whole
    ├── MinimizeError                    E170  no such method of `minimize`, no such setting, or too many parameters
    ├── AdapterError                     E180  no adapters here, or the files of one do not fit
    └── CallbackError                    E190  a callback of `fit` watches what is not there, or lacks a package
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgeopt_runtime.transfer import WeightReport

__all__ = [
    "AdapterError",
    "BatchError",
    "BundleError",
    "CallbackError",
    "EdgeoptError",
    "ExecutionError",
    "ForeignBundleError",
    "GraphError",
    "HyperparameterError",
    "ManifestError",
    "MinimizeError",
    "MissingGraphError",
    "NonFiniteLossError",
    "ProviderError",
    "StateError",
    "StorageError",
    "TamperedBundleError",
    "TruncatedBundleError",
    "UnsupportedVersionError",
    "WeightsError",
]


class EdgeoptError(Exception):
    """Root of every error that edgeopt raises on purpose; ``code`` identifies the kind in every language."""

    code = "E000"


class BundleError(EdgeoptError):
    """The bundle cannot be used."""

    code = "E100"


class TruncatedBundleError(BundleError):
    """A file of the bundle is missing or shorter than it must be, as after an interrupted download."""

    code = "E101"


class ForeignBundleError(BundleError):
    """The file or folder is something else than an edgeopt bundle."""

    code = "E102"


class TamperedBundleError(BundleError):
    """A file of the bundle differs from what the manifest says about it."""

    code = "E103"


class UnsupportedVersionError(BundleError):
    """The bundle is sound, but needs a newer edgeopt or a newer ONNX Runtime than this one."""

    code = "E104"


class ManifestError(BundleError):
    """A field of ``manifest.json`` is missing, of the wrong kind or contradicts another; the message names it."""

    code = "E105"


class GraphError(BundleError):
    """ONNX Runtime refuses a graph of the bundle, or its inputs and outputs differ from the manifest's signature."""

    code = "E106"


class BatchError(EdgeoptError):
    """A batch does not fit the inputs; the message names the input, what it needs and what it got."""

    code = "E110"


class NonFiniteLossError(EdgeoptError):
    """A step gave an infinite or NaN loss or gradient norm, or would have written such numbers into the state.

    The state is as it was before the step. Where it was not finite itself, the message says so.

    Attributes:
        metrics: All metrics of the refused step.
    """

    code = "E120"

    def __init__(self, message: str, metrics: dict[str, float]) -> None:
        super().__init__(message)
        self.metrics = metrics


class ExecutionError(EdgeoptError):
    """ONNX Runtime failed while running a graph. The state is as it was before the call."""

    code = "E121"


class ProviderError(EdgeoptError):
    """An execution provider is not available here or did not start; the message lists those that are available."""

    code = "E130"


class HyperparameterError(EdgeoptError):
    """There is no such hyperparameter, the short name is ambiguous, or the value is no finite number of its range."""

    code = "E140"


class StateError(EdgeoptError):
    """The call does not fit the state of the session: no such graph or tensor, or nothing accumulated to apply."""

    code = "E150"


class MissingGraphError(StateError):
    """The bundle was exported without a graph that the call needs; the message says how to export one."""

    code = "E151"


class WeightsError(StateError):
    """Weights are not those of the model that is to take them. Nothing has changed.

    Attributes:
        report: All that is missing, unexpected, or of another shape or dtype; a `WeightReport`.
    """

    code = "E152"

    def __init__(self, message: str, report: WeightReport) -> None:
        super().__init__(message)
        self.report = report


class StorageError(EdgeoptError):
    """Nothing could be written, for example because the disk is full. What was there before is still whole."""

    code = "E160"


class MinimizeError(EdgeoptError):
    """There is no such method of `minimize` or no such option, or the problem has too many parameters for it."""

    code = "E170"


class AdapterError(EdgeoptError):
    """The bundle has no adapters, or the file of one is damaged, of another kind or for another model.

    Nothing has changed.
    """

    code = "E180"


class CallbackError(EdgeoptError):
    """A callback of `fit` has a setting without a meaning, watches a metric that is not there, or lacks a package."""

    code = "E190"
