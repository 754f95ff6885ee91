"""Tables of what a bundle holds: tensors, graphs, operators, sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from edgeopt_runtime import GraphError
from edgeopt_runtime.manifest import ENCODED, Decision, Hyperparameter, InputSpec, Manifest, OutputSpec, TensorSpec

if TYPE_CHECKING:
    import onnx

__all__ = ["GraphRow", "Report", "TensorRow", "inspect"]


@dataclass(frozen=True)
class TensorRow:
    """One state tensor.

    Attributes:
        name: Its name.
        role: What it is for.
        dtype: Of its elements.
        shape: Its shape.
        trainable: Whether a step changes this parameter.
        bytes: The size of its data; 0 of a parameter that is stored in fewer bits, since others hold it.
        constant: Of what never changes, see `edgeopt_runtime.manifest.TensorSpec`.
    """

    name: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    trainable: bool
    bytes: int
    constant: str | None = None


@dataclass(frozen=True)
class GraphRow:
    """One graph.

    Attributes:
        name: Of its signature.
        bytes: Size of the file.
        opsets: Version of each operator domain; the standard domain is ``ai.onnx``.
        operators: How often each operator occurs, subgraphs included; those outside of the standard domain are
            written ``domain::Operator``. The most frequent come first.
        functions: The model-local functions with the number of nodes in their bodies.
    """

    name: str
    bytes: int
    opsets: dict[str, int]
    operators: dict[str, int]
    functions: dict[str, int]

    @property
    def nodes(self) -> int:
        """Number of nodes, without the bodies of functions."""
        return sum(self.operators.values())


@dataclass(frozen=True)
class Report:
    """What a bundle holds."""

    opset: int
    ir_version: int
    minimum_onnxruntime: str
    producer: dict[str, str]
    decisions: tuple[Decision, ...]
    tensors: tuple[TensorRow, ...]
    accumulators: tuple[TensorRow, ...]
    hyperparameters: tuple[Hyperparameter, ...]
    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]
    graphs: tuple[GraphRow, ...]

    @property
    def bytes_by_role(self) -> dict[str, int]:
        """Size of the state in bytes for each role, in the order in which the roles first occur."""
        sizes: dict[str, int] = {}
        for row in self.tensors:
            sizes[row.role] = sizes.get(row.role, 0) + row.bytes
        return sizes

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain dictionaries, lists, strings and numbers, for JSON."""
        document: dict[str, Any] = _plain(asdict(self))
        for row, graph in zip(document["graphs"], self.graphs, strict=True):
            row["nodes"] = graph.nodes
        document["bytes_by_role"] = self.bytes_by_role
        return document


def inspect(manifest: Manifest, files: Mapping[str, bytes]) -> Report:
    """Describe a bundle.

    Args:
        manifest: Its manifest.
        files: Its serialized graphs by file name.

    Raises:
        GraphError: A graph is no ONNX model.
    """
    tensors, accumulators = (tuple(_row(spec) for spec in specs) for specs in (manifest.tensors, manifest.accumulators))
    return Report(
        opset=manifest.opset,
        ir_version=manifest.ir_version,
        minimum_onnxruntime=manifest.minimum_onnxruntime,
        producer=dict(manifest.producer),
        decisions=manifest.decisions,
        tensors=tensors,
        accumulators=accumulators,
        hyperparameters=manifest.hyperparameters,
        inputs=manifest.inputs,
        outputs=manifest.outputs,
        graphs=tuple(_describe(name, files[signature.file]) for name, signature in sorted(manifest.signatures.items())),
    )


def _row(spec: TensorSpec) -> TensorRow:
    size = 0 if spec.constant == ENCODED else spec.nbytes
    return TensorRow(spec.name, spec.role, spec.dtype, spec.shape, spec.trainable, size, spec.constant)


def _describe(name: str, content: bytes) -> GraphRow:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load_model_from_string(content)
    except DecodeError as error:
        raise GraphError(f"The graph {name} is no ONNX model: {error}.") from error
    counts = Counter(_operators(model.graph.node))
    return GraphRow(
        name=name,
        bytes=len(content),
        opsets={entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        operators=dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        functions={f"{function.domain}::{function.name}": len(function.node) for function in model.functions},
    )


def _operators(nodes: Iterable[onnx.NodeProto]) -> Iterable[str]:
    for node in nodes:
        yield node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _operators(graph.node)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        # As in a manifest, what is left out is not mentioned.
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
