"""Reading and changing a serialized ONNX model without onnx: what it is made of, and inputs that become initializers.

A protobuf message is a sequence of fields, each a key (number and wire type) and a value, so a message can be changed
by copying most of its bytes and leaving out or adding fields. The numbers are those of ``onnx.proto``; the encoding is
described at https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeopt_runtime.dtypes import DTYPES
from edgeopt_runtime.errors import GraphError, StorageError
from edgeopt_runtime.tensors import Buffer, raw_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["External", "bake", "graph_inputs", "has_external_data", "operators_of"]

MODEL_GRAPH = 7
GRAPH_INITIALIZER = 5
GRAPH_INPUT = 11
GRAPH_OUTPUT = 12
VALUE_INFO_NAME = 1
TENSOR_DIMS = 1
TENSOR_DATA_TYPE = 2
TENSOR_NAME = 8
TENSOR_RAW_DATA = 9

TENSOR_EXTERNAL_DATA = 13
TENSOR_DATA_LOCATION = 14
EXTERNAL = 1
# A name is needed, and no file of that name: values are handed over in memory.
EXTERNAL_FILE = "in-memory"

NODE_OP_TYPE = 4
NODE_DOMAIN = 7

# Where nodes and tensors can be: for each message the fields to go into and what they hold.
INSIDE = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
# Protobuf counts the bytes of a message in a signed 32-bit number, and reads messages within messages this deep.
LARGEST_MESSAGE = 2**31 - 1
DEEPEST = 100


class Field(NamedTuple):
    """One field of a message: its number and wire type, all its bytes, and the bytes of its value."""

    number: int
    wire_type: int
    whole: memoryview
    value: memoryview


class External(NamedTuple):
    """An array that an initializer only names: ONNX Runtime is handed its values by name, whatever the file says."""

    array: NDArray[Any]


def graph_inputs(model: bytes) -> frozenset[str]:
    """The names of the inputs of a serialized ``ModelProto``.

    Raises:
        GraphError: The bytes are no ONNX model.
    """
    graphs = (field.value for field in _fields(memoryview(model)) if field.number == MODEL_GRAPH)
    names = (_name_of(part, GRAPH_INPUT) for graph in graphs for part in _fields(graph))
    return frozenset(name for name in names if name is not None)


def bake(
    model: bytes, tensors: Mapping[str, tuple[str, NDArray[Any] | External]], dropped: Collection[str] = ()
) -> list[Buffer]:
    """A model in which some graph inputs have become initializers.

    Args:
        model: A serialized ``ModelProto``.
        tensors: By input name, the dtype (a key of `DTYPES`) and the values, or `External` ones.
        dropped: Names of graph outputs that are left out.

    Returns:
        The pieces of the new model in order; they share the memory of the arrays.

    Raises:
        GraphError: The bytes are no ONNX model.
        StorageError: The model would be larger than the 2 GiB that a single ONNX file can be.
    """
    result: list[Buffer] = []
    graphs = 0
    for field in _fields(memoryview(model)):
        if field.number != MODEL_GRAPH or field.wire_type != LENGTH:
            result.append(field.whole)
            continue
        graphs += 1
        pieces: list[Buffer] = [
            part.whole
            for part in _fields(field.value)
            if _name_of(part, GRAPH_INPUT) not in tensors and _name_of(part, GRAPH_OUTPUT) not in dropped
        ]
        for name, (dtype, array) in tensors.items():
            pieces.extend(_initializer(name, dtype, array))
        result.extend((_key(MODEL_GRAPH, LENGTH) + _varint(_size(pieces)), *pieces))
    if graphs != 1:
        raise GraphError(f"The model must hold one graph, not {graphs}.")
    if _size(result) > LARGEST_MESSAGE:
        raise StorageError(
            f"The model with its weights has {_size(result)} bytes; one ONNX file holds at most {LARGEST_MESSAGE}. "
            "Save the bundle instead: its weights lie outside of the graphs."
        )
    return result


def has_external_data(model: bytes) -> bool:
    """Whether a tensor of a serialized ``ModelProto`` lies in another file.

    Raises:
        GraphError: The bytes are no ONNX model.
    """
    # Such a tensor names its file under this key, so for almost every model one search is enough.
    return b"location" in model and any(_is_external(value) for kind, value in _messages(model) if kind == "tensor")


def operators_of(model: bytes) -> frozenset[str]:
    """The operators in a serialized ``ModelProto``, bodies of functions and subgraphs included.

    Those outside of the standard domain are written ``domain::Operator``.

    Raises:
        GraphError: The bytes are no ONNX model.
    """
    return frozenset(_operator(value) for kind, value in _messages(model) if kind == "node")


def _messages(model: bytes) -> Iterator[tuple[str, memoryview]]:
    """Each message in which nodes or tensors can be, with its kind; those within follow it."""
    levels = [("model", _fields(memoryview(model)))]
    while levels:
        kind, fields = levels[-1]
        inner = INSIDE.get(kind, {})
        for field in fields:
            if field.number in inner and field.wire_type == LENGTH:
                if len(levels) == DEEPEST:
                    raise GraphError(f"The ONNX model has parts within parts more than {DEEPEST} deep.")
                yield inner[field.number], field.value
                levels.append((inner[field.number], _fields(field.value)))
                break
        else:
            levels.pop()


def _is_external(tensor: memoryview) -> bool:
    return any(
        field.number == TENSOR_EXTERNAL_DATA or (field.number == TENSOR_DATA_LOCATION and any(field.value))
        for field in _fields(tensor)
    )


def _operator(node: memoryview) -> str:
    texts = {field.number: field.value for field in _fields(node) if field.number in (NODE_OP_TYPE, NODE_DOMAIN)}
    name, domain = (bytes(texts.get(key, b"")).decode("utf-8", "replace") for key in (NODE_OP_TYPE, NODE_DOMAIN))
    return name if domain in ("", "ai.onnx") else f"{domain}::{name}"


def _fields(message: memoryview) -> Iterator[Field]:
    position = 0
    while position < len(message):
        start = position
        key, position = _read_varint(message, position)
        # Protobuf keeps 32 bits of a key: a field must not pass here for another than it is there.
        key &= 0xFFFFFFFF
        wire_type = key & 7
        if wire_type == LENGTH:
            length, position = _read_varint(message, position)
        elif wire_type == VARINT:
            length = _read_varint(message, position)[1] - position
        elif wire_type in (FIXED64, FIXED32):
            length = 8 if wire_type == FIXED64 else 4
        else:
            raise GraphError(f"The ONNX model is damaged: unknown wire type {wire_type} at byte {start}.")
        end = position + length
        if end > len(message):
            raise GraphError(f"The ONNX model is damaged: a field ends beyond its message, at byte {start}.")
        yield Field(key >> 3, wire_type, message[start:end], message[position:end])
        position = end


def _read_varint(message: memoryview, position: int) -> tuple[int, int]:
    """A number of 7 bits a byte, lowest first, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            break
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise GraphError(f"The ONNX model is damaged: a number does not end at byte {position}.")


def _name_of(field: Field, number: int) -> str | None:
    """The name in a field of a graph if that is an input or an output, whichever has the number; else None."""
    if field.number != number or field.wire_type != LENGTH:
        return None
    names = [bytes(part.value) for part in _fields(field.value) if part.number == VALUE_INFO_NAME]
    return names[-1].decode("utf-8", "replace") if names else None


def _initializer(name: str, dtype: str, given: NDArray[Any] | External) -> list[Buffer]:
    array = given.array if isinstance(given, External) else given
    encoded = name.encode()
    head = b"".join(_key(TENSOR_DIMS, VARINT) + _varint(length) for length in array.shape)
    head += _key(TENSOR_DATA_TYPE, VARINT) + _varint(DTYPES[dtype].onnx)
    head += _key(TENSOR_NAME, LENGTH) + _varint(len(encoded)) + encoded
    if isinstance(given, External):
        head += _entry("location", EXTERNAL_FILE) + _entry("offset", "0") + _entry("length", str(array.nbytes))
        head += _key(TENSOR_DATA_LOCATION, VARINT) + _varint(EXTERNAL)
        return [_key(GRAPH_INITIALIZER, LENGTH) + _varint(len(head)) + head]
    data = raw_bytes(array)
    head += _key(TENSOR_RAW_DATA, LENGTH) + _varint(len(data))
    return [_key(GRAPH_INITIALIZER, LENGTH) + _varint(len(head) + len(data)) + head, data]


def _entry(key: str, value: str) -> bytes:
    """Where external data is, one fact of it."""
    text = _key(1, LENGTH) + _varint(len(key)) + key.encode() + _key(2, LENGTH) + _varint(len(value)) + value.encode()
    return _key(TENSOR_EXTERNAL_DATA, LENGTH) + _varint(len(text)) + text


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _size(pieces: list[Buffer]) -> int:
    return sum(len(piece) for piece in pieces)
