"""Reading and writing bundles: a folder, or the same files in one uncompressed zip archive ``NAME.edgeopt``."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import onnxruntime

from edgeopt_runtime import shown, stored_zip
from edgeopt_runtime.atomic import kind_of, replace_file, storage_errors
from edgeopt_runtime.errors import (
    BundleError,
    EdgeoptError,
    ForeignBundleError,
    ManifestError,
    StorageError,
    TamperedBundleError,
    TruncatedBundleError,
    UnsupportedVersionError,
)
from edgeopt_runtime.folders import MANIFEST_FILE, Changed, Content, FolderReader, open_regular, replace_folder
from edgeopt_runtime.manifest import FileEntry, Manifest
from edgeopt_runtime.onnx_wire import operators_of
from edgeopt_runtime.parsing import (
    CONSTANTS_FILE,
    LARGEST_MANIFEST,
    SIGNATURES,
    STATE_FILE,
    parse_manifest,
    parse_version,
)
from edgeopt_runtime.tensors import Buffer, decode_state, encode_state, largest_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BundleContents", "pack_bundle", "read_bundle", "write_bundle"]

KNOWN_FILES = (MANIFEST_FILE, STATE_FILE, CONSTANTS_FILE, *(f"{name}.onnx" for name in SIGNATURES))
# Protobuf's limit for a message. Graphs have kilobytes: the weights lie in the state.
LARGEST_GRAPH = 2**31 - 1
# How long a folder may be replaced again and again before its files are open; opening takes less than a millisecond.
PATIENCE = 10.0


@dataclass(frozen=True, repr=False)
class BundleContents:
    """A bundle in memory.

    Attributes:
        manifest: What it holds.
        graphs: Serialized ONNX models by file name, such as ``step.onnx``.
        state: The tensors by name, read-only; bfloat16 as ``uint16``. Accumulators are among them if gradients were
            accumulated but not applied when the bundle was saved. Constants are among them too.
    """

    manifest: Manifest
    graphs: Mapping[str, bytes]
    state: Mapping[str, NDArray[Any]]

    def __repr__(self) -> str:
        return f"BundleContents({self.manifest.summary})"

    @property
    def operators(self) -> frozenset[str]:
        """Every operator in the graphs, their subgraphs and functions; those of other domains as ``domain::Operator``.

        Raises:
            GraphError: A graph is no ONNX model.
        """
        return frozenset().union(*(operators_of(graph) for graph in self.graphs.values()))


def read_bundle(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> BundleContents:
    """Read a bundle from a folder, a packed file or the bytes of a packed file, and check all of it.

    Raises:
        BundleError: It cannot be used. The subclass says why, the message where.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _read_packed(_BytesSource(memoryview(source)))
    path = _path_of(source, BundleError)
    try:
        return _read_path(path)
    except BundleError as error:
        raise type(error)(f"{shown.where(path)}: {error}") from error
    except (OSError, ValueError) as error:
        raise BundleError(f"{shown.where(path)} cannot be read: {error}.") from error


def write_bundle(
    path: str | os.PathLike[str],
    manifest: Manifest,
    files: Mapping[str, bytes],
    state: Mapping[str, NDArray[Any]],
) -> None:
    """Write a bundle; whatever happens meanwhile, ``path`` holds either the old bundle or the new one, whole.

    Args:
        path: Becomes a folder if it is one, or if nothing is there and it does not end in ``.edgeopt``; else a file.
        manifest: Its ``files`` are filled in here.
        files: The serialized graph of each signature by file name.
        state: The tensors by name: all of the manifest's, and all or none of its accumulators.

    Raises:
        ManifestError: The manifest contradicts itself or the files.
        StateError: A tensor is missing or differs in dtype or shape.
        StorageError: The disk is full, the folder may not be written, or ``path`` is something else than a file or a
            folder of a bundle.
    """
    path = _path_of(path, StorageError)
    text, contents = _encode(manifest, files, state)
    with storage_errors(path):
        kind = kind_of(path)
    if kind == "folder" or (kind is None and path.suffix != ".edgeopt"):
        replace_folder(path, text, contents, KNOWN_FILES)
    else:
        replace_file(path, _pack(text, contents))


def pack_bundle(manifest: Manifest, files: Mapping[str, bytes], state: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of the packed bundle that `write_bundle` would write."""
    return b"".join(_pack(*_encode(manifest, files, state)))


def _pack(text: bytes, contents: Mapping[str, Content]) -> Iterator[Buffer]:
    pieces = ((name, content.pieces) for name, content in contents.items())
    return stored_zip.pack(chain([(MANIFEST_FILE, [text])], pieces))


def _encode(
    manifest: Manifest, files: Mapping[str, bytes], state: Mapping[str, NDArray[Any]]
) -> tuple[bytes, dict[str, Content]]:
    """The manifest's text, and every other file of a bundle."""
    expected = {signature.file for signature in manifest.signatures.values()}
    if files.keys() != expected:
        raise ManifestError(f"The signatures name the files {sorted(expected)}, but given are {sorted(files)}.")
    specs = manifest.changing
    if any(spec.name in state for spec in manifest.accumulators):
        specs = (*specs, *manifest.accumulators)
    pieces: dict[str, Sequence[Buffer]] = {name: [files[name]] for name in sorted(files)}
    pieces[STATE_FILE] = encode_state(specs, state)
    if manifest.constants:
        pieces[CONSTANTS_FILE] = encode_state(manifest.constants, state)
    contents = {name: Content(parts, _file_entry(parts)) for name, parts in pieces.items()}
    manifest = replace(manifest, files={name: content.entry for name, content in contents.items()})
    try:
        text = manifest.to_json().encode()
    except (TypeError, ValueError) as error:
        # NaN, numbers of numpy's, names that are not text.
        raise ManifestError(f"The manifest cannot be written as JSON: {error}.") from error
    if len(text) > LARGEST_MANIFEST:
        raise ManifestError(f"The manifest has {len(text)} bytes; no runtime reads more than {LARGEST_MANIFEST}.")
    parse_manifest(text)
    return text, contents


def _file_entry(pieces: Sequence[Buffer]) -> FileEntry:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return FileEntry(bytes=sum(len(piece) for piece in pieces), sha256=digest.hexdigest())


def _path_of(given: str | os.PathLike[str], error: type[EdgeoptError]) -> Path:
    """A path in the form in which the rest of the module takes it.

    Raises:
        EdgeoptError: ``error``, if it is none.
    """
    try:
        name = os.fsdecode(given)
    except TypeError as problem:
        raise error(f"A bundle's place is a path, not {shown.value(given)}.") from problem
    if not name:
        raise error("The path of the bundle is empty; `.` is the current folder.")
    return Path(name)


def _read_path(path: Path) -> BundleContents:
    # Links are followed. Whatever is neither a file nor a folder must not even be opened.
    if stat.S_ISDIR(os.stat(path).st_mode):
        return _read_folder(path)
    with open_regular(path) as file:
        return _read_packed(_FileSource(file))


def _read_packed(source: stored_zip.Source) -> BundleContents:
    return _checked(_PackedReader(source))


def _read_folder(folder: Path) -> BundleContents:
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.ExitStack() as stack, contextlib.suppress(Changed):
            reader = FolderReader(folder, KNOWN_FILES, stack)
            contents = _checked(reader)
            # Last, so that whatever else is wrong is named first.
            reader.check_manifest()
            return contents
        if time.monotonic() > deadline:
            raise BundleError("The bundle is saved so often that it could not be read in between. Try again.")


class _Reader(Protocol):
    """A bundle in one of its forms."""

    def manifest(self) -> bytes:
        """The text of ``manifest.json``."""

    def others(self, listed: Collection[str]) -> Collection[str]:
        """Names of files that do not belong here."""

    def open(self, entries: Mapping[str, FileEntry]) -> Mapping[str, int]:
        """The size in bytes of each of these files that is there."""

    def read(self, name: str, size: int) -> bytes:
        """The bytes of a file, which has so many."""


def _checked(reader: _Reader) -> BundleContents:
    try:
        return _check(reader)
    except MemoryError as error:
        raise BundleError("There is too little memory to read the bundle.") from error


def _check(reader: _Reader) -> BundleContents:
    """Read the files of a bundle in the order in which each can be checked against the one before."""
    text = reader.manifest()
    if len(text) > LARGEST_MANIFEST:
        raise ForeignBundleError(f"manifest.json has more than {LARGEST_MANIFEST} bytes, more than any bundle needs.")
    manifest = parse_manifest(text)
    _check_version(manifest)
    expected = {STATE_FILE, *(signature.file for signature in manifest.signatures.values())}
    expected |= {CONSTANTS_FILE} if manifest.constants else set()
    if manifest.files.keys() != expected:
        raise ManifestError(
            f"manifest.json: `files` must list {shown.some(expected)}, but lists {shown.some(manifest.files)}."
        )
    others = reader.others(expected)
    if others:
        raise TamperedBundleError(f"There are files that the manifest does not list: {shown.some(others)}.")
    sizes = reader.open(manifest.files)
    for name, entry in manifest.files.items():
        _check_size(manifest, name, entry, sizes.get(name))
    _check_memory(manifest)
    contents = {name: _check_content(name, entry, reader) for name, entry in manifest.files.items()}
    state = decode_state(STATE_FILE, contents.pop(STATE_FILE), manifest.changing, manifest.accumulators)
    if manifest.constants:
        state |= decode_state(CONSTANTS_FILE, contents.pop(CONSTANTS_FILE), manifest.constants)
    return BundleContents(manifest, contents, state)


def _check_content(name: str, entry: FileEntry, reader: _Reader) -> bytes:
    content = reader.read(name, entry.bytes)
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise TamperedBundleError(f"{name} differs from its SHA-256 in the manifest. Fetch the bundle again.")
    return content


def _check_size(manifest: Manifest, name: str, entry: FileEntry, size: int | None) -> None:
    largest = {
        STATE_FILE: largest_file((*manifest.changing, *manifest.accumulators)),
        CONSTANTS_FILE: largest_file(manifest.constants),
    }.get(name, LARGEST_GRAPH)
    if entry.bytes > largest:
        raise ManifestError(f"manifest.json: `files.{name}.bytes` is {entry.bytes}; here it can be at most {largest}.")
    if size is None or size < entry.bytes:
        found = "is missing" if size is None else f"has {size} bytes"
        raise TruncatedBundleError(f"{name} {found}; it must have {entry.bytes}. Fetch the bundle again.")
    if size > entry.bytes:
        raise TamperedBundleError(f"{name} differs from its SHA-256 in the manifest. Fetch the bundle again.")


def _check_memory(manifest: Manifest) -> None:
    """A system may promise memory that it does not have, and end the process when it is used."""
    needed = sum(entry.bytes for entry in manifest.files.values())
    # Windows has no such call, and promises nothing that it does not have.
    if hasattr(os, "sysconf") and needed > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        raise BundleError(f"The bundle has {needed} bytes, which is more than the memory of this machine.")


def _check_version(manifest: Manifest) -> None:
    if parse_version(onnxruntime.__version__) < parse_version(manifest.minimum_onnxruntime):
        raise UnsupportedVersionError(
            f"The bundle needs ONNX Runtime {manifest.minimum_onnxruntime} or newer; this is "
            f"{onnxruntime.__version__}. Update the onnxruntime package, or export for a lower opset."
        )


class _PackedReader:
    """The entries of an archive."""

    def __init__(self, source: stored_zip.Source) -> None:
        self._source = source
        self._entries = stored_zip.index(source)

    def manifest(self) -> bytes:
        if MANIFEST_FILE not in self._entries:
            raise ForeignBundleError("This is not an edgeopt bundle: it has no manifest.json.")
        entry = self._entries[MANIFEST_FILE]
        if entry.size > LARGEST_MANIFEST:
            raise ForeignBundleError(f"manifest.json has {entry.size} bytes, more than any bundle needs.")
        return stored_zip.read(self._source, entry)

    def others(self, listed: Collection[str]) -> Collection[str]:
        return self._entries.keys() - {MANIFEST_FILE, *listed}

    def open(self, entries: Mapping[str, FileEntry]) -> Mapping[str, int]:
        return {name: entry.size for name, entry in self._entries.items()}

    def read(self, name: str, size: int) -> bytes:
        return stored_zip.read(self._source, self._entries[name])


class _BytesSource:
    """A packed bundle in memory."""

    def __init__(self, view: memoryview) -> None:
        self._view = view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
        self.size = len(self._view)

    def read(self, start: int, length: int) -> bytes:
        if start + length > self.size:
            raise TruncatedBundleError(f"The archive ends at byte {self.size}, within a record.")
        return bytes(self._view[start : start + length])


class _FileSource:
    """A packed bundle on the disk."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size

    def read(self, start: int, length: int) -> bytes:
        if start + length > self.size:
            raise TruncatedBundleError(f"The archive ends at byte {self.size}, within a record.")
        self._file.seek(start)
        content = self._file.read(length)
        if len(content) != length:
            raise TruncatedBundleError(f"The archive ends early, at byte {start + len(content)}.")
        return content
