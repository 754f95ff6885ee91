"""Reading ``manifest.json`` without trusting it.

Every field is checked for its kind, every name for being known and used once, every reference for its target.
Unknown fields are refused: a runtime that does not know what a field means must not guess.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np

from edgeopt_runtime import shown
from edgeopt_runtime.consistency import check_consistency
from edgeopt_runtime.dtypes import DTYPES
from edgeopt_runtime.errors import ForeignBundleError, ManifestError, UnsupportedVersionError
from edgeopt_runtime.manifest import (
    ENCODED,
    FORMAT,
    SCHEMA_VERSION,
    AdapterSpec,
    AdapterTensor,
    Decision,
    Encoded,
    FileEntry,
    GraphInput,
    GraphOutput,
    Hyperparameter,
    InputSpec,
    Joined,
    Manifest,
    OutputSpec,
    Signature,
    TensorSpec,
)
from edgeopt_runtime.ranges import Range

__all__ = ["CONSTANTS_FILE", "LARGEST_MANIFEST", "SIGNATURES", "STATE_FILE", "parse_manifest", "parse_version"]

STATE_FILE = "state.safetensors"
CONSTANTS_FILE = "constants.safetensors"
SIGNATURES = (
    *("step", "accumulate", "apply", "evaluate", "predict", "hessian_vector", "reset", "view", "summary"),
    *("merge", "predict_merged"),
)

ROLES = ("parameter", "buffer", "optimizer", "counter", "seed")
INPUT_KINDS = ("model", "loss", "metric")
GRAPH_INPUT_KINDS = ("state", "batch", "hyper", "vector", "sum", "merged")
GRAPH_OUTPUT_KINDS = ("state", "metric", "weight", "sum", "output", "merged", "check")
CONSTANT_KINDS = ("initializer", "input", ENCODED)
RANGE_ENDS = ("at_least", "above", "at_most", "below")
LONGEST_NAME = 1024
# Of 4 bits.
CODES = 16
LARGEST_LENGTH = 2**48
# numpy 1.26 makes arrays of at most 32 axes; those of models have up to 8.
MOST_AXES = 32
# A parameter tensor under AdamW takes 1,200 bytes of the manifest, in 60 values. Models that devices train have some
# hundreds of them, the largest a few thousand; these limits leave room for 27,000.
LARGEST_MANIFEST = 1 << 25
MOST_VALUES = 1 << 21
# No number of a manifest needs more; reading decimal digits takes time that grows with their square.
LONGEST_NUMBER = 1000

T = TypeVar("T")


class Node(NamedTuple):
    """A JSON value and where it stands, so that each complaint can name the field."""

    value: Any
    path: str

    def fail(self, problem: str) -> NoReturn:
        """Raise a `ManifestError` about this field."""
        raise ManifestError(f"manifest.json: `{self.path}` {problem}.")

    def expected(self, what: str) -> NoReturn:
        """Raise a `ManifestError` that shows the value next to what was expected."""
        self.fail(f"must be {what}, but is {shown.value(self.value)}")

    def mapping(self) -> dict[str, Node]:
        """The entries of a JSON object."""
        if not isinstance(self.value, dict):
            self.expected("an object")
        return {key: Node(value, f"{self.path}.{key}" if self.path else key) for key, value in self.value.items()}

    def record(self, required: Collection[str], optional: Collection[str] = ()) -> dict[str, Node]:
        """The entries of a JSON object that has all ``required`` keys and none but these and the ``optional`` ones."""
        entries = self.mapping()
        for key in required:
            if key not in entries:
                Node(None, f"{self.path}.{key}" if self.path else key).fail("is missing")
        for key, node in entries.items():
            if key not in required and key not in optional:
                node.fail(f"is unknown to schema version {SCHEMA_VERSION}")
        return entries

    def array(self, parse: Callable[[Node], T]) -> tuple[T, ...]:
        """Each element of a JSON array, parsed."""
        if not isinstance(self.value, list):
            self.expected("an array")
        return tuple(parse(Node(value, f"{self.path}[{index}]")) for index, value in enumerate(self.value))

    def text(self) -> str:
        """A string that can be encoded as UTF-8."""
        if not isinstance(self.value, str):
            self.expected("a string")
        if any("\ud800" <= character <= "\udfff" for character in self.value):
            self.expected("text without lone surrogates")
        return self.value

    def label(self) -> str:
        """A name: printable, not empty and not longer than 1024 characters."""
        name = self.text()
        if not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
            self.expected(f"a printable name of 1 to {LONGEST_NAME} characters")
        return name

    def folder(self) -> str:
        """The name of a folder of our own making: letters, digits and underscores."""
        name = self.text()
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name, re.ASCII):
            self.expected("a name of small letters, digits and underscores")
        return name

    def choice(self, allowed: Collection[str]) -> str:
        """One of a few words."""
        if not isinstance(self.value, str) or self.value not in allowed:
            self.expected("one of " + ", ".join(allowed))
        # One copy of the word for all who say it.
        return sys.intern(self.value)

    def boolean(self) -> bool:
        """``true`` or ``false``."""
        if not isinstance(self.value, bool):
            self.expected("true or false")
        return self.value

    def integer(self, least: int = 0) -> int:
        """A whole number from ``least`` to the largest length a tensor can have."""
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not least <= self.value <= LARGEST_LENGTH:
            self.expected(f"a whole number from {least} to {LARGEST_LENGTH}")
        return self.value

    def number(self) -> float:
        """A finite number."""
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            self.expected("a number")
        if not abs(self.value) <= 1.7976931348623157e308:
            self.expected("a finite number")
        return self.value

    def digest(self) -> str:
        """A SHA-256 in hexadecimal."""
        digest = self.text()
        if not re.fullmatch(r"[0-9a-f]{64}", digest, re.ASCII):
            self.expected("64 lower-case hexadecimal digits")
        return digest

    def static_shape(self) -> tuple[int, ...]:
        """Axis lengths, all known."""
        shape = self.array(Node.integer)
        # An axis of 0 makes a tensor empty, but numpy wants the other lengths to have a product all the same.
        if len(shape) > MOST_AXES or math.prod(max(length, 1) for length in shape) > LARGEST_LENGTH:
            self.expected(f"the shape of a tensor that fits into memory, of at most {MOST_AXES} axes")
        return shape

    def symbolic_shape(self) -> tuple[int | str, ...]:
        """Axis lengths, known (numbers) or named (strings)."""
        shape = self.array(lambda node: node.label() if isinstance(node.value, str) else node.integer())
        if len(shape) > MOST_AXES:
            self.expected(f"a shape of at most {MOST_AXES} axes")
        return shape


def parse_manifest(text: str | bytes) -> Manifest:
    """Read a manifest from JSON.

    Raises:
        ForeignBundleError: The text is not JSON, or not a manifest of edgeopt's.
        UnsupportedVersionError: The schema is newer than this runtime.
        ManifestError: A field is missing, malformed or contradicts another; the message names the field.
    """
    try:
        document = _read_json(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError) as error:
        raise ForeignBundleError(f"manifest.json is not JSON: {error}.") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ForeignBundleError(f'manifest.json is not an edgeopt manifest: `format` must be "{FORMAT}".')
    version = Node(document.get("schema_version"), "schema_version").integer(1)
    if version > SCHEMA_VERSION:
        raise UnsupportedVersionError(
            f"The bundle has schema version {version}; this runtime reads versions up to {SCHEMA_VERSION}. "
            "Update edgeopt on this device, or export the bundle with an older edgeopt."
        )
    entries = Node(document, "").record(
        (
            *("format", "schema_version", "opset", "ir_version", "minimum_onnxruntime", "producer", "tensors"),
            *("accumulators", "hyperparameters", "inputs", "outputs", "signatures", "files"),
        ),
        ("joined", "encoded", "aliases", "adapters", "decisions", "checksum"),
    )
    if "checksum" in entries:
        entries["checksum"].digest()
    manifest = Manifest(
        opset=entries["opset"].integer(1),
        ir_version=entries["ir_version"].integer(1),
        minimum_onnxruntime=_version_text(entries["minimum_onnxruntime"]),
        producer={key: node.text() for key, node in entries["producer"].mapping().items()},
        decisions=entries["decisions"].array(_decision) if "decisions" in entries else (),
        tensors=entries["tensors"].array(lambda node: _tensor(node, ROLES)),
        accumulators=entries["accumulators"].array(lambda node: _tensor(node, ("accumulator",))),
        joined=entries["joined"].array(_joined) if "joined" in entries else (),
        encoded=entries["encoded"].array(_encoded) if "encoded" in entries else (),
        aliases=_aliases(entries["aliases"]) if "aliases" in entries else {},
        adapters=entries["adapters"].array(_adapter) if "adapters" in entries else (),
        hyperparameters=entries["hyperparameters"].array(_hyperparameter),
        inputs=entries["inputs"].array(_input),
        outputs=entries["outputs"].array(_output),
        signatures={
            Node(name, "signatures").choice(SIGNATURES): _signature(node, name)
            for name, node in entries["signatures"].mapping().items()
        },
        files={name: _file(node) for name, node in entries["files"].mapping().items()},
    )
    if version == 1 and manifest.constants:
        Node(version, "schema_version").expected("2 for a bundle with constants")
    check_consistency(manifest)
    return manifest


def parse_version(text: str) -> tuple[int, ...]:
    """The leading numbers of a version, ``"1.20.1+cpu"`` gives ``(1, 20, 1)``."""
    match = re.match(r"\d{1,6}(?:\.\d{1,6})*", text, re.ASCII)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _read_json(text: str) -> Any:
    # A list or an object takes 64 bytes and more, for two characters of text.
    values = text.count(",") + text.count("[") + text.count("{")
    if values > MOST_VALUES:
        raise ForeignBundleError(f"manifest.json holds {values} values, more than any bundle needs.")
    return json.loads(text, object_pairs_hook=_unique_keys, parse_int=_whole_number, parse_constant=_no_constant)


def _whole_number(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"there is a number of {len(digits)} digits")
    return int(digits)


def _unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # add gives None
        raise ValueError(f"the key {shown.value(twice)} occurs twice in one object")
    return document


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _version_text(node: Node) -> str:
    text = node.text()
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6}){1,3}", text, re.ASCII):
        node.expected("a version such as 1.17.0")
    return text


def _decision(node: Node) -> Decision:
    entries = node.record(("kind", "subject", "text", "warning"))
    return Decision(
        kind=entries["kind"].label(),
        subject=entries["subject"].label(),
        text=entries["text"].text(),
        warning=entries["warning"].boolean(),
    )


def _tensor(node: Node, roles: Collection[str]) -> TensorSpec:
    entries = node.record(("name", "role", "dtype", "shape"), ("trainable", "parameter", "slot", "constant"))
    return TensorSpec(
        name=entries["name"].label(),
        role=entries["role"].choice(roles),
        dtype=entries["dtype"].choice(DTYPES),
        shape=entries["shape"].static_shape(),
        trainable=entries["trainable"].boolean() if "trainable" in entries else False,
        parameter=entries["parameter"].label() if "parameter" in entries else None,
        slot=entries["slot"].label() if "slot" in entries else None,
        constant=entries["constant"].choice(CONSTANT_KINDS) if "constant" in entries else None,
    )


def _joined(node: Node) -> Joined:
    entries = node.record(("name", "members"))
    return Joined(name=entries["name"].label(), members=entries["members"].array(Node.label))


def _encoded(node: Node) -> Encoded:
    entries = node.record(("name", "codes"), ("scales", "table", "block"))
    table = tuple(float(number) for number in entries["table"].array(Node.number)) if "table" in entries else ()
    if table and (len(table) != CODES or any(a >= b for a, b in pairwise(table))):
        entries["table"].expected(f"{CODES} numbers in ascending order")
    return Encoded(
        name=entries["name"].label(),
        codes=entries["codes"].label(),
        scales=entries["scales"].label() if "scales" in entries else None,
        table=table,
        block=entries["block"].integer(1) if "block" in entries else None,
    )


def _aliases(node: Node) -> dict[str, str]:
    return {Node(alias, f"{node.path}.{alias}").label(): name.label() for alias, name in node.mapping().items()}


def _adapter(node: Node) -> AdapterSpec:
    entries = node.record(("name", "kind", "config", "tensors"))
    return AdapterSpec(
        name=entries["name"].folder(),
        kind=entries["kind"].label(),
        config={
            Node(key, entries["config"].path).label(): _setting(value)
            for key, value in entries["config"].mapping().items()
        },
        tensors=entries["tensors"].array(_adapter_tensor),
    )


def _setting(node: Node) -> Any:
    """A value of an adapter's configuration."""
    if isinstance(node.value, list):
        return node.array(Node.label)
    if node.value is None or isinstance(node.value, bool):
        return node.value
    return node.text() if isinstance(node.value, str) else node.number()


def _adapter_tensor(node: Node) -> AdapterTensor:
    entries = node.record(("key", "tensor"), ("weight",))
    return AdapterTensor(
        key=entries["key"].label(),
        tensor=entries["tensor"].label(),
        weight=entries["weight"].label() if "weight" in entries else None,
    )


def _hyperparameter(node: Node) -> Hyperparameter:
    entries = node.record(("name", "dtype", "default"), ("description", "range"))
    dtype = entries["dtype"].choice(DTYPES)
    default = entries["default"].number()
    if dtype in ("bfloat16", "bool"):
        entries["dtype"].expected("a type of number that numpy has")
    storage = DTYPES[dtype].storage
    if storage.kind in "iu":
        entries["default"].integer(-LARGEST_LENGTH)
    limits = np.iinfo(storage) if storage.kind in "iu" else np.finfo(storage)
    if not float(limits.min) <= default <= float(limits.max):
        entries["default"].expected(f"a finite number of type {dtype}, from {limits.min} to {limits.max}")
    allowed = _range(entries["range"]) if "range" in entries else None
    if allowed is not None and default not in allowed:
        entries["default"].expected(f"{allowed}, as its range says")
    return Hyperparameter(
        name=entries["name"].label(),
        dtype=dtype,
        default=default,
        description=entries["description"].text() if "description" in entries else "",
        range=allowed,
    )


def _range(node: Node) -> Range:
    ends = {name: float(end.number()) for name, end in node.record((), RANGE_ENDS).items()}
    if not ends or {"at_least", "above"} <= ends.keys() or {"at_most", "below"} <= ends.keys():
        node.expected("one lower end (at_least or above), one upper end (at_most or below), or both")
    return Range(**ends)


def _input(node: Node) -> InputSpec:
    entries = node.record(("name", "kind", "dtype", "shape"), ("classes", "ignored"))
    if "classes" in entries and DTYPES[entries["dtype"].choice(DTYPES)].storage.kind not in "iu":
        entries["classes"].fail("is for arrays of whole numbers")
    if "ignored" in entries and "classes" not in entries:
        entries["ignored"].fail("is for arrays with classes")
    return InputSpec(
        name=entries["name"].label(),
        kind=entries["kind"].choice(INPUT_KINDS),
        dtype=entries["dtype"].choice(DTYPES),
        shape=entries["shape"].symbolic_shape(),
        classes=entries["classes"].integer(1) if "classes" in entries else None,
        ignored=entries["ignored"].integer(-LARGEST_LENGTH) if "ignored" in entries else None,
    )


def _output(node: Node) -> OutputSpec:
    entries = node.record(("name", "dtype", "shape"))
    return OutputSpec(
        name=entries["name"].label(),
        dtype=entries["dtype"].choice(DTYPES),
        shape=entries["shape"].symbolic_shape(),
    )


def _signature(node: Node, name: str) -> Signature:
    entries = node.record(("file", "inputs", "outputs"))
    # A fixed name for each graph: no path of the manifest's choosing is ever opened.
    return Signature(
        file=entries["file"].choice((f"{name}.onnx",)),
        inputs=entries["inputs"].array(_graph_input),
        outputs=entries["outputs"].array(_graph_output),
    )


def _graph_input(node: Node) -> GraphInput:
    entries = node.record(("name", "kind"), ("tensor",))
    return GraphInput(
        name=entries["name"].label(),
        kind=entries["kind"].choice(GRAPH_INPUT_KINDS),
        tensor=entries["tensor"].label() if "tensor" in entries else None,
    )


def _graph_output(node: Node) -> GraphOutput:
    entries = node.record(("name", "kind"), ("tensor", "weight"))
    return GraphOutput(
        name=entries["name"].label(),
        kind=entries["kind"].choice(GRAPH_OUTPUT_KINDS),
        tensor=entries["tensor"].label() if "tensor" in entries else None,
        weight=entries["weight"].label() if "weight" in entries else None,
    )


def _file(node: Node) -> FileEntry:
    entries = node.record(("bytes", "sha256"))
    return FileEntry(bytes=entries["bytes"].integer(), sha256=entries["sha256"].digest())
