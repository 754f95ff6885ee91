"""Ways to damage a bundle, each a function in a table.

A bundle comes as its files by name. A mutator of files returns them changed, with sizes and hashes in the manifest that
fit again, so that what lies behind the hashes is reached; a mutator of archives changes the bytes of the packed bundle.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import struct
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

import wire

Files = dict[str, bytes]

MANIFEST, STATE = "manifest.json", "state.safetensors"

NUMBERS: list[Any] = [0, -1, 1, 2, 7, 64, 65, 255, 256, 300, 2**31 - 1, 2**31, 2**32, 2**48, 2**53, 2**63 - 1, 2**63]
NUMBERS += [2**64, -(2**63), -0.0, 0.5, 1e-320, 1e38, 3.5e38, 1e308, 10**18, 10**40, 10**310]
TEXTS = [
    "",
    " ",
    ".",
    "..",
    "../x",
    "/etc/passwd",
    "C:\\x",
    "a\0b",
    "\ud800",
    "\u202e",
    "x" * 1025,
    "\xe9",
    "\U0001f600",
]
TEXTS += [
    "weight",
    "bias",
    "loss",
    "step",
    "state",
    "batch",
    "vector",
    "x",
    "y",
    "target",
    "next.weight",
    "schedule.lr",
]
TEXTS += ["step.onnx", "STEP.ONNX", "1e400", "NaN"]
DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
CODES = {
    "float32": ("F32", 4),
    "float64": ("F64", 8),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "bool": ("BOOL", 1),
}
CODES |= {"int64": ("I64", 8), "int32": ("I32", 4), "int16": ("I16", 2), "int8": ("I8", 1), "uint8": ("U8", 1)}
ROLES = ["parameter", "buffer", "optimizer", "counter", "seed", "accumulator"]
SHAPES: list[Any] = [[], [0], [1] * 33, [1] * 65, [2**48, 2**48], [0, 2**48, 2**48], [-1], ["n"], ["n", "n"], [1.5]]
VALUES: list[Any] = [None, True, False, {}, [[]], {"": {}}, *NUMBERS, *TEXTS, *SHAPES, *DTYPES, *ROLES]
INTEGERS = [number for number in NUMBERS if isinstance(number, int)]

OPERATORS = ["Loop", "If", "Scan", "Expand", "ConstantOfShape", "Range", "Tile", "Pad", "Resize", "Reshape", "Gather"]
OPERATORS += ["ScatterND", "Einsum", "Conv", "ConvTranspose", "MaxPool", "LSTM", "TopK", "Split", "Concat", "Cast"]
OPERATORS += ["Shape", "Slice", "Squeeze", "Unsqueeze", "OneHot", "NonZero", "Compress", "SequenceAt", "Transpose"]
OPERATORS += ["QuantizeLinear", "CumSum", "GatherND", "RoiAlign", "Identity", "Gemm", "NoSuchOperator"]


# --- bytes


def flip(random: Random, content: bytes) -> bytes:
    """Some bytes become others."""
    changed = bytearray(content)
    for _ in range(random.randint(1, 4) if content else 0):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def cut(random: Random, content: bytes) -> bytes:
    """The end is missing."""
    return content[: random.randrange(len(content) + 1)]


def splice(random: Random, content: bytes) -> bytes:
    """A piece is lost, doubled or put elsewhere."""
    start, end = sorted(random.randrange(len(content) + 1) for _ in range(2))
    end = min(end, start + 64)
    place = random.randrange(len(content) + 1)
    piece = content[start:end]
    rest = content[:start] + content[end:] if random.random() < 0.5 else content
    return rest[:place] + piece + rest[place:] if random.random() < 0.7 else rest


BYTES: list[Callable[[Random, bytes], bytes]] = [flip, cut, splice]


# --- JSON


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in _places(item, (*path, key)))]


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def _spot(random: Random, document: Any) -> tuple[Any, Any]:
    """A container in a document, and one of its keys."""
    path = random.choice([path for path in _places(document) if path])
    return _at(document, path[:-1]), path[-1]


def swap_value(random: Random, document: Any) -> None:
    """A value becomes one of a table of evil ones."""
    holder, key = _spot(random, document)
    holder[key] = random.choice(VALUES)


def swap_kind(random: Random, document: Any) -> None:
    """A value becomes another of the same type, so that the document stays plausible."""
    holder, key = _spot(random, document)
    if isinstance(holder[key], str):
        holder[key] = random.choice(TEXTS)
    elif isinstance(holder[key], list):
        holder[key] = random.choice(SHAPES)
    else:
        holder[key] = random.choice(NUMBERS)


def exchange(random: Random, document: Any) -> None:
    """Two values change places, or one is copied over the other."""
    (holder, key), (other, place) = _spot(random, document), _spot(random, document)
    first, second = json.loads(json.dumps(holder[key])), json.loads(json.dumps(other[place]))
    holder[key] = second
    if random.random() < 0.5 and isinstance(other, (dict, list)):
        other[place] = first


def drop(random: Random, document: Any) -> None:
    """Something is missing."""
    holder, key = _spot(random, document)
    del holder[key]


def repeat(random: Random, document: Any) -> None:
    """Something is there again, under its own name or another."""
    holder, key = _spot(random, document)
    copy = json.loads(json.dumps(holder[key]))
    if isinstance(holder, list):
        holder.insert(random.randrange(len(holder) + 1), copy)
    else:
        holder[random.choice([*holder, "extra", *TEXTS[:4]])] = copy


def rename(random: Random, document: Any) -> None:
    """A string that occurs in several places is another one everywhere, as are references to it."""
    strings = [path for path in _places(document) if isinstance(_at(document, path), str)]
    if strings:
        old, new = _at(document, random.choice(strings)), random.choice(TEXTS)
        for path in strings:
            if _at(document, path) == old:
                _at(document, path[:-1])[path[-1]] = new


def nest(random: Random, document: Any) -> None:
    """A value lies deep within others."""
    holder, key = _spot(random, document)
    for _ in range(random.choice([1, 10, 80])):
        holder[key] = [holder[key]] if random.random() < 0.5 else {"a": holder[key]}


DOCUMENTS: list[Callable[[Random, Any], None]] = [swap_value, swap_kind, exchange, drop, repeat, rename, nest]


def _edited(random: Random, text: bytes) -> bytes:
    document = json.loads(text)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        if any(_places(document)):
            random.choice(DOCUMENTS)(random, document)
    return json.dumps(document).encode()


def raw_json(random: Random, text: bytes) -> bytes:
    """What a JSON library would not write: literals, numbers, keys and depths."""
    literals = [
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"9" * 5000,
        b"[" * 3000,
        b'{"a":' * 3000,
        b'"\\ud800"',
        b"\xef\xbb\xbf",
    ]
    literals += [b'{"a":1,"a":2}', b"1" + b"0" * 400, b"0" * 40, b'"\xff"', b"[1,]", b"/**/1", b"1E5", b"-"]
    place = random.choice([index for index, byte in enumerate(text) if byte in b":[,"] or [0]) + 1
    return text[:place] + random.choice(literals) + (text[place:] if random.random() < 0.5 else b"," + text[place:])


# --- files


def manifest_fields(random: Random, files: Files) -> Files:
    """Fields of the manifest are other ones."""
    return {**files, MANIFEST: _edited(random, files[MANIFEST])}


def manifest_records(random: Random, files: Files) -> Files:
    """A record of the manifest is added or replaced by one that is well formed, with contents of any kind."""
    document = json.loads(files[MANIFEST])
    names = [entry["name"] for entry in document["tensors"]] + ["new", "loss", "accumulator.weight"]
    for _ in range(random.choice([1, 1, 2, 3])):
        kind = random.choice(["tensors", "accumulators", "hyperparameters", "inputs", "outputs", "joined", "decisions"])
        entry: dict[str, Any] = {"name": random.choice(["new", "other", *names])}
        if kind == "hyperparameters":
            entry |= {"dtype": random.choice(DTYPES), "default": random.choice(NUMBERS)}
            if random.random() < 0.3:
                ends = random.choices(["at_least", "above", "at_most", "below"], k=2)
                entry["range"] = {end: random.choice(NUMBERS) for end in ends}
        elif kind == "joined":
            entry["members"] = random.choices(names, k=random.randrange(4))
        elif kind == "decisions":
            entry = {"kind": "fixed", "subject": random.choice(names), "text": random.choice(TEXTS), "warning": True}
        else:
            entry |= {"dtype": random.choice(DTYPES), "shape": random.choice([[], [2], [3, 2], *SHAPES])}
        if kind == "inputs":
            entry["kind"] = random.choice(["model", "loss"])
        if kind in ("tensors", "accumulators"):
            entry["role"] = "accumulator" if kind == "accumulators" else random.choice(ROLES)
            entry |= {key: random.choice(names) for key in ("parameter", "slot") if random.random() < 0.4}
        records = document.setdefault(kind, [])
        if records and random.random() < 0.5:
            records[random.randrange(len(records))] = entry
        else:
            records.append(entry)
    return {**files, MANIFEST: json.dumps(document).encode()}


def signature_ports(random: Random, files: Files) -> Files:
    """Inputs and outputs of the signatures are others, or trade places."""
    document = json.loads(files[MANIFEST])
    names = [entry["name"] for kind in ("tensors", "accumulators", "inputs") for entry in document[kind]]
    for _ in range(random.choice([1, 1, 2])):
        signature = random.choice(list(document["signatures"].values()))
        side = random.choice(["inputs", "outputs"])
        ports = signature[side]
        kinds = (
            ["state", "batch", "hyper", "vector", "sum"]
            if side == "inputs"
            else ["state", "metric", "weight", "sum", "output", "check"]
        )
        port = {"name": random.choice(["new", *names]), "kind": random.choice(kinds)}
        port |= {key: random.choice(names) for key in ("tensor", "weight") if random.random() < 0.3}
        if ports and random.random() < 0.5:
            ports[random.randrange(len(ports))] = port
        elif ports and random.random() < 0.5:
            del ports[random.randrange(len(ports))]
        else:
            ports.append(port)
    return {**files, MANIFEST: json.dumps(document).encode()}


def manifest_text(random: Random, files: Files) -> Files:
    """The manifest's text is damaged."""
    return {**files, MANIFEST: random.choice([*BYTES, raw_json])(random, files[MANIFEST])}


def graph_fields(random: Random, files: Files) -> Files:
    """Fields of a graph's messages are other ones."""
    name = random.choice([name for name in files if name.endswith(".onnx")])
    graph = files[name]
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        graph = wire.edited(random, graph, INTEGERS, [text.encode("utf-8", "replace") for text in TEXTS + OPERATORS])
    return rehashed({**files, name: graph})


def graph_bytes(random: Random, files: Files) -> Files:
    """The bytes of a graph are damaged, or those of another graph."""
    names = [name for name in files if name.endswith(".onnx")]
    name = random.choice(names)
    changed = files[random.choice(names)] if random.random() < 0.1 else random.choice(BYTES)(random, files[name])
    return rehashed({**files, name: changed})


def _state_parts(content: bytes) -> tuple[bytes, bytes]:
    end = 8 + int.from_bytes(content[:8], "little")
    return content[8:end], content[end:]


def state_header(random: Random, files: Files) -> Files:
    """Entries of the state's header are other ones: offsets that overlap or leave holes, types, shapes, names."""
    header, data = _state_parts(files[STATE])
    header = _edited(random, header) if random.random() < 0.8 else raw_json(random, header)
    length = len(header) if random.random() < 0.9 else random.choice(INTEGERS) % 2**64
    return rehashed({**files, STATE: length.to_bytes(8, "little") + header + data})


def state_bytes(random: Random, files: Files) -> Files:
    """The bytes of the state are damaged."""
    return rehashed({**files, STATE: random.choice(BYTES)(random, files[STATE])})


def manifest_and_state(random: Random, files: Files) -> Files:
    """Tensors are others in the manifest and, alike, in the state, which is zeros otherwise."""
    document = json.loads(files[MANIFEST])
    for _ in range(random.choice([1, 1, 2])):
        spec = random.choice(document["tensors"])
        for key, table in (("name", TEXTS), ("dtype", DTYPES), ("shape", SHAPES)):
            if random.random() < 0.4:
                spec[key] = random.choice(table)
    header: dict[str, Any] = {}
    end = 0
    for spec in document["tensors"]:
        code, size = CODES[spec["dtype"]]
        length = math.prod(spec["shape"]) * size if all(isinstance(axis, int) for axis in spec["shape"]) else 8
        start, end = end, end + (length if 0 <= length < 1 << 16 else 8)
        header[spec["name"]] = {"dtype": code, "shape": spec["shape"], "data_offsets": [start, end]}
    head = json.dumps(header).encode()
    content = len(head).to_bytes(8, "little") + head + bytes(end)
    return rehashed({**files, MANIFEST: json.dumps(document).encode(), STATE: content})


def other_files(random: Random, files: Files) -> Files:
    """A file is missing, has another name, or is one too many."""
    name = random.choice(list(files))
    content = files[name]
    rest = {other: held for other, held in files.items() if other != name or random.random() < 0.3}
    return {**rest, random.choice([name.upper(), "../" + name, "sub/" + name, "x" * 300, "é", name]): content[:100]}


FILES: list[Callable[[Random, Files], Files]] = [manifest_fields, manifest_text, graph_fields, graph_bytes]
FILES += [state_header, state_bytes, manifest_and_state, other_files, manifest_records, signature_ports]


# --- archives


def archive_bytes(random: Random, packed: bytes) -> bytes:
    """The bytes of the archive are damaged."""
    return random.choice(BYTES)(random, packed)


def archive_records(random: Random, packed: bytes) -> bytes:
    """Fields of the archive's records are other ones: sizes, offsets, flags, lengths, counts."""
    signatures = (b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\6\6", b"PK\6\7")
    starts = [start for signature in signatures for start in _all(packed, signature)]
    changed = bytearray(packed)
    for _ in range(random.choice([1, 1, 2, 3])):
        start = random.choice(starts) + random.randrange(4, 46)
        form = random.choice(["<H", "<I", "<Q"])
        size = struct.calcsize(form)
        if start + size <= len(changed):
            changed[start : start + size] = struct.pack(form, random.choice([*INTEGERS, len(packed)]) % 256**size)
    return bytes(changed)


def archive_of_zipfile(random: Random, packed: bytes) -> bytes:
    """Another archiver's: compressed, with comments, extra fields, a file twice, folders, or bytes in front."""
    target = io.BytesIO(b"#!" if random.random() < 0.1 else b"")
    target.seek(0, io.SEEK_END)
    files = unpacked(packed)
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name if random.random() < 0.95 else random.choice(["../", "/", "a/"]) + name)
            info.extra = random.choice([b"", b"\1\0\x10\0" + b"\xff" * 16, b"\1\0\0\0", b"UT\5\0\3abcd"])
            info.comment = random.choice([b"", b"PK\5\6" * 9])
            deflated = random.random() < 0.1
            archive.writestr(info, content, zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED)
        archive.comment = random.choice([b"", b"x", b"PK\5\6" + bytes(18), b"PK\6\7" + bytes(16)])
    return archive_records(random, target.getvalue()) if random.random() < 0.3 else target.getvalue()


ARCHIVES: list[Callable[[Random, bytes], bytes]] = [archive_bytes, archive_records, archive_of_zipfile]


def _all(content: bytes, part: bytes) -> list[int]:
    places, start = [], content.find(part)
    while start >= 0:
        places.append(start)
        start = content.find(part, start + 1)
    return places


# --- both


def unpacked(packed: bytes) -> Files:
    """The files of a bundle."""
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed_again(files: Files) -> bytes:
    """The archive of some files."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return target.getvalue()


def rehashed(files: Files) -> Files:
    """The files with a manifest that knows their sizes and hashes."""
    document = json.loads(files[MANIFEST])
    document["files"] = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in files.items()
        if name != MANIFEST
    }
    document.pop("checksum", None)
    return {**files, MANIFEST: json.dumps(document).encode()}


def mutant(seed: int, number: int, bundles: list[bytes]) -> tuple[str, Files | bytes]:
    """One damaged bundle, the same for the same numbers: what was done, and its files or its archive."""
    random = Random(f"{seed}.{number}")
    packed = random.choice(bundles)
    if random.random() < 0.2:
        change = random.choice(ARCHIVES)
        return change.__name__, change(random, packed)
    edit = random.choice(FILES)
    return edit.__name__, edit(random, unpacked(packed))
