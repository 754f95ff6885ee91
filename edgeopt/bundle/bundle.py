"""`Bundle`: an exported training step in memory."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from edgeopt.bundle.inspection import Report, inspect
from edgeopt_runtime import BundleContents, TrainingSession, pack_bundle, read_bundle, write_bundle
from edgeopt_runtime.adapters import read_adapters, write_adapters
from edgeopt_runtime.calls import no_attribute
from edgeopt_runtime.manifest import Decision, Manifest

if TYPE_CHECKING:
    import onnx
    import onnx_ir
    from numpy.typing import NDArray

    from edgeopt.memory import Estimate
    from edgeopt.optimizers import OptimizerLike

__all__ = ["Bundle", "Replacement"]

_SESSION = "bundle.session() trains, and so does TrainingSession.load(path)"
_INSTEAD = {
    **dict.fromkeys(("step", "fit", "evaluate", "predict", "train", "run", "accumulate"), _SESSION),
    **dict.fromkeys(("export", "write", "serialize", "dump"), "bundle.save(path) writes it"),
}


@dataclass(frozen=True, eq=False, repr=False)
class Bundle:
    """A training step: its graphs, the state they work on, and the manifest that describes both.

    Args:
        manifest: What the bundle holds; ``files`` is filled in when it is written.
        graphs: The graph of each signature by file name, such as ``step.onnx``. Models of onnx and of onnx_ir are
            serialized at once; later changes to them have no effect.
        state: The tensors of the manifest by name; bfloat16 as the type of ml_dtypes or as ``uint16``.
    """

    manifest: Manifest
    graphs: Mapping[str, bytes | onnx.ModelProto | onnx_ir.Model]
    state: Mapping[str, NDArray[Any]]

    def __post_init__(self) -> None:
        # The one assignment to a frozen field: from here on graphs are bytes.
        object.__setattr__(self, "graphs", _serialized(self.graphs))

    def __repr__(self) -> str:
        return f"Bundle({self.manifest.summary})"

    def __getattr__(self, name: str) -> NoReturn:
        raise no_attribute("Bundle", name, _INSTEAD)

    @classmethod
    def of(cls, contents: BundleContents) -> Bundle:
        """The bundle that these are the contents of."""
        return cls(contents.manifest, contents.graphs, contents.state)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """What the export settled by itself: symbolic dimensions, frozen statistics, guessed roles and the like."""
        return self.manifest.decisions

    @classmethod
    def load(cls, source: str | os.PathLike[str] | bytes) -> Bundle:
        """Read a bundle from a folder, a packed file or the bytes of one.

        Raises:
            BundleError: It cannot be used; the message says why.
        """
        return cls.of(read_bundle(source))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bundle, as one file if ``path`` ends in ``.edgeopt`` and as a folder otherwise.

        Raises:
            ManifestError: Manifest, graphs and state contradict each other.
            StateError: A tensor is missing or differs in dtype or shape.
            StorageError: The file cannot be written; what was there before is whole.
        """
        write_bundle(path, self.manifest, _serialized(self.graphs), self.state)

    def to_bytes(self) -> bytes:
        """The bytes that `save` would write to one file. Raises what `save` raises, but for `StorageError`."""
        return pack_bundle(self.manifest, _serialized(self.graphs), self.state)

    def save_adapters(self, path: str | os.PathLike[str]) -> None:
        """Write the adapters by themselves, in PEFT's layout. See `TrainingSession.save_adapters`, also for errors."""
        write_adapters(path, self.manifest, self.state)

    def load_adapters(self, path: str | os.PathLike[str]) -> Bundle:
        """A bundle like this one with the adapters of a folder. See `TrainingSession.load_adapters`, for errors too."""
        return replace(self, state={**self.state, **read_adapters(path, self.manifest)})

    def load_weights(self, source: Any, which: Literal["all", "trainable"] = "all", *, strict: bool = True) -> Bundle:
        """A bundle like this one with other weights; optimizer state and all else stay.

        Arguments and errors are those of `TrainingSession.load_weights`. Without ``strict`` a `UserWarning` says what
        did not fit.
        """
        session = self.session()
        report = session.load_weights(source, which, strict=strict)
        if not report.complete:
            warnings.warn(f"Not all weights fit: {report}", stacklevel=2)
        return replace(self, state={**self.state, **session.state()})

    def contents(self) -> BundleContents:
        """The bundle as the runtime takes it."""
        return BundleContents(self.manifest, _serialized(self.graphs), self.state)

    def session(self, **options: Any) -> TrainingSession:
        """A session that trains a copy of the state; ``options`` are those of `TrainingSession`."""
        return TrainingSession(self.contents(), **options)

    def with_optimizer(self, optimizer: OptimizerLike) -> Replacement:
        """A bundle like this one with another optimizer, and what became of the old one's state.

        Predictions, buffers, transforms and metrics stay, and weights too unless the old optimizer evaluates something
        else. Averages of gradients and the like go on where they mean the same to both optimizers; `Replacement` names
        what does.

        Args:
            optimizer: As in `edgeopt.export`.

        Raises:
            SignatureError: What takes a new export: the optimizer measures curvature or the loss, or freezes parameters
                whose gradients a transform of the user's own combines with others; or the old one had no use for
                gradients.
            ParameterPatternError: A group of parameters is empty.
        """
        # Composing graphs needs the exporting half of the package; reading and running a bundle does not.
        from edgeopt.training import replace_optimizer

        contents, carryover = replace_optimizer(self.contents(), optimizer)
        return Replacement(Bundle.of(contents), *carryover)

    def estimate(self, graph: str = "step", /, **sizes: int) -> Estimate:
        """What memory a step will take at most, by part and by layer: ``print(bundle.estimate(batch=8))``.

        It is what a process grows by on the CPU, from the imported runtime on, in the first steps and all later ones.

        Args:
            graph: Another graph than ``step``: ``accumulate``, ``evaluate`` or ``predict``.
            sizes: Of each symbolic dimension of the batch, by name.

        Raises:
            SignatureError: A dimension is missing or unknown, or there is no such graph.
        """
        from edgeopt.memory import estimate

        return estimate(self.contents(), sizes, graph)

    def inspect(self) -> Report:
        """Tables of what the bundle holds."""
        return inspect(self.manifest, _serialized(self.graphs))


class Replacement(NamedTuple):
    """A bundle with another optimizer, and what became of the old one's state.

    Attributes:
        bundle: The new bundle.
        kept: New tensors that go on, with the old ones that they come from; `optimizer.step` is among them if updates
            are counted on, which the schedule of the learning rate follows too.
        started: New tensors that begin anew.
        dropped: Old tensors that nothing takes over.
        from_view: Parameters that became what the old optimizer let evaluation and prediction use in their place, such
            as an average; all others have the value that they had.
    """

    bundle: Bundle
    kept: Mapping[str, str]
    started: tuple[str, ...]
    dropped: tuple[str, ...]
    from_view: tuple[str, ...]


def _serialized(graphs: Mapping[str, bytes | onnx.ModelProto | onnx_ir.Model]) -> dict[str, bytes]:
    return {name: _serialize(graph) for name, graph in graphs.items()}


def _serialize(graph: bytes | onnx.ModelProto | onnx_ir.Model) -> bytes:
    if isinstance(graph, bytes):
        return graph
    import onnx

    if not isinstance(graph, onnx.ModelProto):
        import onnx_ir

        graph = onnx_ir.to_proto(graph)
    content: bytes = graph.SerializeToString(deterministic=True)
    return content
