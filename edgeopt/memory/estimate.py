"""The memory of a training step, foretold from its graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import onnx

from edgeopt.errors import SignatureError
from edgeopt.memory.liveness import Held, run
from edgeopt.memory.optimized import optimized
from edgeopt.memory.shapes import Inferred, open_shapes
from edgeopt_runtime import BundleContents
from edgeopt_runtime.manifest import Manifest, Signature
from edgeopt_runtime.onnx_wire import bake

__all__ = ["Estimate", "LayerMemory", "estimate"]

MIB = 1 << 20

# Measured with ONNX Runtime 1.32 on Linux over the models of tests/memory: what a session takes besides its constants,
# what each node of it takes, and code and small buffers that the first run of the operators brings.
_SESSION, _NODE, _FIRST_RUN = 8 * MIB, 5600, 6 * MIB


@dataclass(frozen=True)
class LayerMemory:
    """What one layer takes, in bytes.

    Attributes:
        name: Path of the module; ``(backward)``, say, for what belongs to none.
        parameters: Its parameters and buffers.
        gradients: Of those that train, if all were there at once; mostly each goes as soon as its update is made.
        optimizer: The optimizer's slots.
        activations: What it has computed and what is there at the moment when there is most.
    """

    name: str
    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0


@dataclass(frozen=True)
class Estimate:
    """The most memory that a process grows by, from the imported runtime on; all in bytes.

    Attributes:
        sizes: Of the symbolic dimensions.
        graph: Name of the signature.
        peak: The sum of the five parts below.
        runtime: ONNX Runtime's session: nodes, constants, code.
        state: Parameters, buffers, optimizer state.
        written: The tensors of the state that a step replaces: their next values lie beside them until it is sure that
            all are finite.
        activations: Intermediate tensors at the moment when there are most, and the operator's workspace.
        arena: What ONNX Runtime's arena takes besides: gaps that fit nothing.
        where: Name of the node that runs at that moment.
        layers: The same by layer, in the order of the parameters.
        unknown: Tensors whose sizes depend on values in the batch; they count as nothing.
    """

    sizes: Mapping[str, int]
    graph: str
    runtime: int
    state: int
    written: int
    activations: int
    arena: int
    where: str
    layers: tuple[LayerMemory, ...]
    unknown: tuple[str, ...] = ()

    @property
    def peak(self) -> int:
        """Bytes in all."""
        return self.runtime + self.state + self.written + self.activations + self.arena

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain dictionaries, lists, strings and numbers, for JSON."""
        return {"peak": self.peak, **asdict(self)}

    def __str__(self) -> str:
        given = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        parts = ("runtime", "state", "written", "activations", "arena")
        rows = [f"{'MiB':>36} {'params':>9} {'gradients':>9} {'optimizer':>9} {'activations':>11}"]
        for layer in self.layers:
            numbers = (layer.parameters, layer.gradients, layer.optimizer, layer.activations)
            texts = [f"{number / MIB:.2f}" if number else "" for number in numbers]
            name = layer.name if len(layer.name) <= 36 else "…" + layer.name[-35:]
            rows.append(f"{name:36} {texts[0]:>9} {texts[1]:>9} {texts[2]:>9} {texts[3]:>11}".rstrip())
        total = " + ".join(f"{part} {getattr(self, part) / MIB:.1f}" for part in parts)
        return "\n".join(
            [f"{self.graph}({given}): {self.peak / MIB:.1f} MiB = {total}", f"most is there in {self.where}", *rows]
        )


def estimate(contents: BundleContents, sizes: Mapping[str, int], graph: str = "step") -> Estimate:
    """Foretell the peak of a run.

    The graph is optimised by the ONNX Runtime that is installed, then followed in the order of its plan, with its
    rules for memory: views, operators that write over their input, the arena's regions and chunks.

    Args:
        contents: The bundle.
        sizes: Of each symbolic dimension of the batch.
        graph: Name of the signature.

    Raises:
        SignatureError: There is no such graph, or a dimension is missing, unknown or no positive whole number.
        GraphError: ONNX Runtime refuses the graph.
    """
    manifest = contents.manifest
    if graph not in manifest.signatures:
        raise SignatureError(f"The bundle has no graph {graph!r}; it has {', '.join(manifest.signatures)}.")
    signature = manifest.signatures[graph]
    used = {port.name for port in signature.inputs}
    names = {dim for spec in manifest.inputs if spec.name in used for dim in spec.shape if isinstance(dim, str)}
    _check_sizes(sizes, names)
    model = optimized(_with_constants(contents, signature))
    given = {port.name: _input(port, sizes) for port in model.graph.input}
    opset = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    result = run(model.graph, opset, given, open_shapes(model))
    next_values = {port.tensor for port in signature.outputs}
    held = {spec.name: spec.nbytes for spec in manifest.memory}
    # They take memory from the first use on.
    accumulators = {spec.name for spec in manifest.accumulators}
    accumulators |= {entry.name for entry in manifest.joined if accumulators.issuperset(entry.members)}
    return Estimate(
        sizes=dict(sizes),
        graph=graph,
        runtime=_SESSION
        + _FIRST_RUN
        + _NODE * len(model.graph.node)
        + sum(len(tensor.raw_data) for tensor in model.graph.initializer),
        state=sum(size for name, size in held.items() if name not in accumulators or name in used),
        written=sum(size for name, size in held.items() if name in next_values),
        activations=result.live,
        arena=max(result.touched - result.live, 0),
        where=result.node,
        layers=_layers(manifest, result.held),
        unknown=result.unknown,
    )


def _with_constants(contents: BundleContents, signature: Signature) -> bytes:
    """The graph with the constants that a session makes part of it."""
    inside = {spec.name: spec for spec in contents.manifest.constants if spec.constant == "initializer"}
    read = [inside[port.name] for port in signature.inputs if port.name in inside]
    graph = contents.graphs[signature.file]
    return b"".join(bake(graph, {spec.name: (spec.dtype, contents.state[spec.name]) for spec in read}))


def _check_sizes(sizes: Mapping[str, int], names: set[str]) -> None:
    for name, size in sizes.items():
        if name not in names:
            known = f"its symbolic dimensions are {', '.join(sorted(names))}" if names else "all its sizes are fixed"
            raise SignatureError(f"The batch has no dimension {name!r}; {known}.")
        if type(size) is not int or size < 1:
            raise SignatureError(f"The size of {name!r} must be a whole number from 1 on, not {size!r}.")
    if missing := sorted(names - sizes.keys()):
        raise SignatureError(f"The sizes of {', '.join(missing)} are needed: estimate({missing[0]}=8).")


def _input(port: onnx.ValueInfoProto, sizes: Mapping[str, int]) -> Inferred:
    tensor = port.type.tensor_type
    dims = (dim.dim_value if dim.HasField("dim_value") else sizes.get(dim.dim_param, 1) for dim in tensor.shape.dim)
    return Inferred(tensor.elem_type, tuple(dims))


def _layers(manifest: Manifest, held: tuple[Held, ...]) -> tuple[LayerMemory, ...]:
    rows: dict[str, dict[str, int]] = {}

    def add(layer: str, column: str, nbytes: int) -> None:
        row = rows.setdefault(layer, {})
        row[column] = row.get(column, 0) + nbytes

    of = {part: entry.name for entry in manifest.encoded for part in entry.parts}
    for spec in (*manifest.changing, *manifest.constants):
        layer = (spec.parameter or of.get(spec.name, spec.name)).rpartition(".")[0] or "(model)"
        if spec.role in ("parameter", "buffer"):
            add(layer, "parameters", spec.nbytes)
            if spec.trainable:
                add(layer, "gradients", spec.nbytes)
        elif spec.role == "optimizer" and spec.parameter is not None:
            add(layer, "optimizer", spec.nbytes)
    for one in held:
        add(_layer(one.node), "activations", one.nbytes)
    return tuple(LayerMemory(name, **row) for name, row in rows.items())


def _layer(node: str) -> str:
    """The module that a node belongs to: nodes exported from torch are called `path.of.module/operator`."""
    path, _, operator = node.partition("/")
    if path in ("backward", "loss"):
        return f"({path})"
    if node.startswith("_inlfunc"):
        return "(update)"
    return path if operator else "(model)"
