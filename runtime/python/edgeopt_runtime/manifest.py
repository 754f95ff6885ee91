"""What ``manifest.json`` says: tensors, inputs, hyperparameters and the signatures of the graphs.

These classes are plain data. `edgeopt_runtime.parsing` reads them from JSON and trusts nothing; `Manifest.to_json`
writes them, always in the same way.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgeopt_runtime import shown
from edgeopt_runtime.dtypes import DTYPES
from edgeopt_runtime.errors import TamperedBundleError
from edgeopt_runtime.ranges import Range

__all__ = [
    "ENCODED",
    "FORMAT",
    "SCHEMA_VERSION",
    "AdapterSpec",
    "AdapterTensor",
    "Decision",
    "Encoded",
    "FileEntry",
    "GraphInput",
    "GraphOutput",
    "Hyperparameter",
    "InputSpec",
    "Joined",
    "Manifest",
    "OutputSpec",
    "Share",
    "Signature",
    "TensorSpec",
    "check_checksum",
    "counts_draws",
    "flat_spec",
    "is_share",
]

FORMAT = "edgeopt"
SCHEMA_VERSION = 2
# Key of the last field: the SHA-256 of all the text in front of it.
CHECKSUM = '"checksum"'
# Last component of the name of the counter of random numbers drawn.
DRAWS = "draws"
# The place of a parameter that others stand for.
ENCODED = "encoded"


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of the state.

    Attributes:
        name: Also the name of the graph inputs that read it.
        role: ``parameter``, ``buffer``, ``optimizer``, ``counter``, ``seed`` or ``accumulator``.
        dtype: A key of `edgeopt_runtime.dtypes.DTYPES`.
        shape: Lengths of the axes; ``()`` for a scalar.
        trainable: Whether a step changes this parameter.
        parameter: The parameter that an optimizer slot or a gradient accumulator belongs to.
        slot: The optimizer's name for this kind of state, such as ``exp_avg``.
        constant: Of a parameter or buffer that no graph writes, which lies beside the state: ``initializer`` where it
            pays to make it part of the graphs that read it, ``input`` where all had better read one copy of it;
            ``encoded`` of a parameter that is not stored itself, see `Encoded`.
    """

    name: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    trainable: bool = False
    parameter: str | None = None
    slot: str | None = None
    constant: str | None = None

    @property
    def nbytes(self) -> int:
        """Size of the tensor's data in bytes."""
        return math.prod(self.shape) * DTYPES[self.dtype].storage.itemsize


@dataclass(frozen=True)
class Joined:
    """Tensors that the graphs see as one flat tensor: their elements in row-major order, one tensor after the other.

    The members are what is saved, restored and asked for by name; the graphs know the joined tensor only.

    Attributes:
        name: Of the joined tensor, also that of the graph inputs that read it.
        members: Names of its parts, in order; all of one dtype.
    """

    name: str
    members: tuple[str, ...]


@dataclass(frozen=True)
class Encoded:
    """A parameter that is stored in fewer bits, as constants that the graphs read in its place.

    Attributes:
        name: Of the parameter.
        codes: The constant that holds a number of few bits for each element.
        scales: That of the scales, if there are any.
        table: What 4-bit codes stand for, 16 numbers in ascending order.
        block: How many elements share a scale, in row-major order, where there is a table.
    """

    name: str
    codes: str
    scales: str | None = None
    table: tuple[float, ...] = ()
    block: int | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the constants."""
        return (self.codes,) if self.scales is None else (self.codes, self.scales)


@dataclass(frozen=True)
class InputSpec:
    """One array of a batch.

    Attributes:
        name: That of the graph inputs which read it.
        kind: ``model``, ``loss``, or ``metric`` for what only evaluation takes.
        dtype: A key of `edgeopt_runtime.dtypes.DTYPES`.
        shape: Lengths of the axes; a string is a length known at run time.
        classes: Of an array of classes how many there are: its values are from 0 to one less.
        ignored: A value that an array of classes may hold besides, for what is not to count.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int | str, ...]
    classes: int | None = None
    ignored: int | None = None


@dataclass(frozen=True)
class OutputSpec:
    """One output of the model; a string in ``shape`` is a length known at run time."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class Hyperparameter:
    """A number that may be changed between steps, an input of the graphs of shape ``()``; without a range, freely."""

    name: str
    dtype: str
    default: float
    description: str = ""
    range: Range | None = None


@dataclass(frozen=True)
class GraphInput:
    """An input of a graph.

    Attributes:
        name: For ``state``, ``batch`` and ``hyper`` that of the tensor, input or number.
        kind: ``state``, ``batch``, ``hyper``, ``vector``; of ``summary`` ``sum``, a float64 array that other graphs
            gave and batches were added up in; of ``predict_merged`` ``merged``, what ``merge`` gives under that name.
        tensor: For ``vector``, a direction in the space of the parameters: the parameter whose dtype and shape it has.
    """

    name: str
    kind: str
    tensor: str | None = None


@dataclass(frozen=True)
class GraphOutput:
    """An output of a graph.

    Attributes:
        name: Its name in the graph.
        kind: ``state``, ``metric``, ``weight``, ``sum``, ``output``, ``merged`` or ``check``. A sum is to be added up
            over batches for ``summary``, which makes metrics of sums; a check is 0 if everything that the graph writes
            is finite, and NaN otherwise.
        tensor: For ``state``: the state tensor it replaces.
        weight: For a ``metric``: the output that holds its weight in the mean over batches. In bundles of schema
            version 1, which have no ``summary``, those of ``evaluate`` all have one.
    """

    name: str
    kind: str
    tensor: str | None = None
    weight: str | None = None


@dataclass(frozen=True)
class Signature:
    """The file of one graph and what goes in and out of it."""

    file: str
    inputs: tuple[GraphInput, ...]
    outputs: tuple[GraphOutput, ...]


@dataclass(frozen=True)
class Share:
    """Gradients of losses that are divided by one weight.

    Attributes:
        weight: The accumulator of the weight.
        accumulators: Those of the gradients, by parameter.
    """

    weight: str
    accumulators: Mapping[str, str]


@dataclass(frozen=True)
class Decision:
    """Something that the exporter settled by itself, for a person to read.

    Attributes:
        kind: What it is about: ``symbolic``, ``fixed``, ``frozen``, ``no_gradient``, ``role``, ``loss``, ``optimizer``,
            ``adapter``, ``memory``, ``checked`` or ``unchecked``.
        subject: The dimension, tensor or graph.
        text: One line: what was decided, and why.
        warning: Whether it is a guess, or may be other than what was meant.
    """

    kind: str
    subject: str
    text: str
    warning: bool = False


@dataclass(frozen=True)
class AdapterTensor:
    """One tensor of an adapter.

    Attributes:
        key: Its name in ``adapter_model.safetensors``.
        tensor: The parameter, which has the same shape there.
        weight: The parameter beside which it works; None for one of the model's own that trains as a whole.
    """

    key: str
    tensor: str
    weight: str | None = None


@dataclass(frozen=True)
class AdapterSpec:
    """What of a model trains, where the rest stays, and how it is kept by itself.

    Attributes:
        name: Of the folder, where there are several.
        kind: ``lora``, ``dora``, ``ia3`` and so on.
        config: What ``adapter_config.json`` says: text, numbers, true or false, and lists of text.
        tensors: What ``adapter_model.safetensors`` holds.
    """

    name: str
    kind: str
    config: Mapping[str, Any]
    tensors: tuple[AdapterTensor, ...]


@dataclass(frozen=True)
class FileEntry:
    """Size in bytes and SHA-256 (hexadecimal) of one file of the bundle."""

    bytes: int
    sha256: str


@dataclass(frozen=True, repr=False)
class Manifest:
    """Everything a runtime must know about a bundle; ``files`` is filled in when the bundle is written.

    ``aliases`` are further names of parameters and buffers, each with the name of the tensor: a model may use one under
    several names.
    """

    opset: int
    ir_version: int
    minimum_onnxruntime: str
    tensors: tuple[TensorSpec, ...]
    accumulators: tuple[TensorSpec, ...]
    hyperparameters: tuple[Hyperparameter, ...]
    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]
    signatures: Mapping[str, Signature]
    joined: tuple[Joined, ...] = ()
    encoded: tuple[Encoded, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    adapters: tuple[AdapterSpec, ...] = ()
    producer: Mapping[str, str] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()
    files: Mapping[str, FileEntry] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Manifest({self.summary})"

    @property
    def summary(self) -> str:
        """One line, for people: parameters, size of the state, arrays of a batch, graphs."""
        parameters = [spec for spec in self.tensors if spec.role == "parameter"]
        trainable = sum(spec.trainable for spec in parameters)
        arrays = (f"{spec.name} {spec.dtype} {list(spec.shape)}" for spec in self.inputs)
        stored = sum(spec.nbytes for spec in (*self.changing, *self.constants))
        return (
            f"parameters: {len(parameters)}, trainable: {trainable}; state: {len(self.tensors)} tensors of "
            f"{stored:,} bytes; batch: {shown.some(arrays) or 'nothing'}; "
            f"graphs: {', '.join(sorted(self.signatures)) or 'none'}"
        )

    @property
    def memory(self) -> tuple[TensorSpec, ...]:
        """The tensors that the graphs read and write: all but those that are joined, and what they are joined to."""
        specs = {spec.name: spec for spec in (*self.tensors, *self.accumulators)}
        flat = [flat_spec(entry, specs) for entry in self.joined]
        members = {name for entry in self.joined for name in entry.members}
        return (*(spec for spec in specs.values() if spec.name not in members and spec.constant != ENCODED), *flat)

    @property
    def constants(self) -> tuple[TensorSpec, ...]:
        """The tensors that never change, which have a file of their own."""
        return tuple(spec for spec in self.tensors if spec.constant and spec.constant != ENCODED)

    @property
    def changing(self) -> tuple[TensorSpec, ...]:
        """The other tensors of the state."""
        return tuple(spec for spec in self.tensors if not spec.constant)

    @property
    def shares(self) -> tuple[Share, ...]:
        """The sums that accumulation makes: one share, unless losses are means over different things."""
        found: dict[str | None, list[TensorSpec]] = {}
        for spec in self.accumulators:
            if spec.slot is None or is_share(spec):
                found.setdefault(spec.slot, []).append(spec)
        return tuple(
            Share(
                next(spec.name for spec in specs if spec.parameter is None),
                {spec.parameter: spec.name for spec in specs if spec.parameter is not None},
            )
            for specs in found.values()
            if any(spec.parameter is None for spec in specs)
        )

    def to_json(self) -> str:
        """The text of ``manifest.json``; equal manifests give equal text."""
        document = {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "opset": self.opset,
            "ir_version": self.ir_version,
            "minimum_onnxruntime": self.minimum_onnxruntime,
            "producer": dict(sorted(self.producer.items())),
            **({"decisions": [_fields(entry) for entry in self.decisions]} if self.decisions else {}),
            "tensors": [_fields(spec) for spec in self.tensors],
            "accumulators": [_fields(spec) for spec in self.accumulators],
            **({"joined": [_fields(entry) for entry in self.joined]} if self.joined else {}),
            **({"encoded": [_fields(entry) for entry in self.encoded]} if self.encoded else {}),
            **({"aliases": dict(sorted(self.aliases.items()))} if self.aliases else {}),
            **({"adapters": [_adapter(spec) for spec in self.adapters]} if self.adapters else {}),
            "hyperparameters": [_fields(spec) for spec in self.hyperparameters],
            "inputs": [_fields(spec) for spec in self.inputs],
            "outputs": [_fields(spec) for spec in self.outputs],
            "signatures": {
                name: {
                    "file": signature.file,
                    "inputs": [_fields(port) for port in signature.inputs],
                    "outputs": [_fields(port) for port in signature.outputs],
                }
                for name, signature in sorted(self.signatures.items())
            },
            "files": {name: _fields(entry) for name, entry in sorted(self.files.items())},
            "checksum": "",
        }
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
        start = text.rindex(CHECKSUM)
        return f'{text[:start]}{CHECKSUM}: "{_sha256(text[:start].encode())}"\n}}\n'


def check_checksum(text: bytes) -> None:
    """Compare the text of a manifest with the SHA-256 in its last field; bundles of old have none.

    It tells of accidents: whoever changes a manifest on purpose can compute it.

    Raises:
        TamperedBundleError: They differ.
    """
    start = text.rfind(CHECKSUM.encode())
    if start < 0 or not text[start + len(CHECKSUM) :].lstrip().startswith(b":"):
        return
    last = re.fullmatch(rb'\s*:\s*"([0-9a-f]{64})"\s*\}\s*', text[start + len(CHECKSUM) :])
    if last is None or last[1].decode() != _sha256(text[:start]):
        raise TamperedBundleError(
            "manifest.json was changed after it was written: it differs from its checksum. Fetch the bundle again; to "
            "change hyperparameters or weights, load it and use `set_hyper`, `load_parameters` and `save`."
        )


def flat_spec(entry: Joined, specs: Mapping[str, TensorSpec]) -> TensorSpec:
    """What the graphs see of joined tensors, given the description of each by name."""
    parts = [specs[name] for name in entry.members]
    size = sum(math.prod(part.shape) for part in parts)
    return TensorSpec(entry.name, parts[0].role, parts[0].dtype, (size,), slot=parts[0].slot)


def is_share(spec: TensorSpec) -> bool:
    """Whether an accumulator belongs to another share of the losses than the first."""
    return spec.role == "accumulator" and spec.slot is not None and re.fullmatch(r"share_\d+", spec.slot) is not None


def counts_draws(spec: TensorSpec) -> bool:
    """Whether a tensor is the count of runs that drew random numbers."""
    return spec.role == "counter" and spec.name.rpartition(".")[2] == DRAWS


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _fields(record: Any) -> dict[str, Any]:
    """A record as JSON, without the optional fields it does not use."""
    fields = {key: _plain(value) for key, value in vars(record).items()}
    if isinstance(record, TensorSpec) and record.role != "parameter":
        del fields["trainable"]
    if isinstance(record, Encoded) and not record.table:
        del fields["table"]
    return {key: value for key, value in fields.items() if value is not None}


def _adapter(spec: AdapterSpec) -> dict[str, Any]:
    config = {key: _plain(value) for key, value in sorted(spec.config.items())}
    return {**_fields(spec), "config": config, "tensors": [_fields(tensor) for tensor in spec.tensors]}


def _plain(value: Any) -> Any:
    if isinstance(value, Range):
        # One without ends allows everything, as no range does.
        return value.ends() or None
    return list(value) if isinstance(value, tuple) else value
