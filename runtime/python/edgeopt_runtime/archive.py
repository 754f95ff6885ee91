"""Reading and writing bundles: a folder, or the same files in one uncompressed zip archive ``NAME.edgeopt``."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import onnxruntime

from edgeopt_runtime import stored_zip
from edgeopt_runtime.atomic import backup_of, replace_file, replace_folder
from edgeopt_runtime.errors import (
    BundleError,
    ForeignBundleError,
    ManifestError,
    TamperedBundleError,
    TruncatedBundleError,
    UnsupportedVersionError,
)
from edgeopt_runtime.manifest import FileEntry, Manifest
from edgeopt_runtime.parsing import SIGNATURES, STATE_FILE, parse_manifest, parse_version
from edgeopt_runtime.tensors import Buffer, decode_state, encode_state

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BundleContents", "pack_bundle", "read_bundle", "write_bundle"]

MANIFEST_FILE = "manifest.json"
KNOWN_FILES = (MANIFEST_FILE, STATE_FILE, *(f"{name}.onnx" for name in SIGNATURES))
LARGEST_MANIFEST = 1 << 26


@dataclass(frozen=True)
class BundleContents:
    """A bundle in memory.

    Attributes:
        manifest: What it holds.
        graphs: Serialized ONNX models by file name, such as ``step.onnx``.
        state: The tensors by name, read-only; bfloat16 as ``uint16``. Accumulators are among them if gradients were
            accumulated but not applied when the bundle was saved.
    """

    manifest: Manifest
    graphs: Mapping[str, bytes]
    state: Mapping[str, NDArray[Any]]


def read_bundle(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> BundleContents:
    """Read a bundle from a folder, a packed file or the bytes of a packed file, and check all of it.

    Raises:
        BundleError: It cannot be used. The subclass says why, the message where.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _read_archive(_BytesSource(memoryview(source).cast("B")))
    path = Path(source)
    backup = backup_of(path)
    try:
        if not path.exists() and backup.is_dir():
            # Power failed between the two renames of a save, see `edgeopt_runtime.atomic`.
            path = backup
        if path.is_dir():
            return _read_folder(path)
        with open(path, "rb") as file:
            return _read_archive(_FileSource(file))
    except BundleError as error:
        raise type(error)(f"{path}: {error}") from error
    except (OSError, ValueError) as error:
        raise BundleError(f"{path} cannot be read: {error}.") from error


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
        StorageError: The disk is full, or the folder may not be written.
    """
    path = Path(path)
    contents = _encode(manifest, files, state)
    if path.is_dir() or (path.suffix != ".edgeopt" and not path.exists()):
        replace_folder(path, contents, KNOWN_FILES)
    else:
        replace_file(path, stored_zip.pack(contents.items()))


def pack_bundle(manifest: Manifest, files: Mapping[str, bytes], state: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of the packed bundle that `write_bundle` would write."""
    return b"".join(stored_zip.pack(_encode(manifest, files, state).items()))


def _encode(
    manifest: Manifest, files: Mapping[str, bytes], state: Mapping[str, NDArray[Any]]
) -> dict[str, Sequence[Buffer]]:
    """The pieces of each file of a bundle."""
    expected = {signature.file for signature in manifest.signatures.values()}
    if files.keys() != expected:
        raise ManifestError(f"The signatures name the files {sorted(expected)}, but given are {sorted(files)}.")
    specs = manifest.tensors
    if any(spec.name in state for spec in manifest.accumulators):
        specs = (*specs, *manifest.accumulators)
    contents: dict[str, Sequence[Buffer]] = {name: [files[name]] for name in sorted(files)}
    contents[STATE_FILE] = encode_state(specs, state)
    manifest = replace(manifest, files={name: _file_entry(pieces) for name, pieces in contents.items()})
    text = manifest.to_json()
    parse_manifest(text)
    return {MANIFEST_FILE: [text.encode()], **contents}


def _file_entry(pieces: Sequence[Buffer]) -> FileEntry:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return FileEntry(bytes=sum(len(piece) for piece in pieces), sha256=digest.hexdigest())


def _read_archive(source: stored_zip.Source) -> BundleContents:
    entries = stored_zip.index(source)
    sizes = {name: entry.size for name, entry in entries.items()}
    return _check(sizes, lambda name: stored_zip.read(source, entries[name]))


def _read_folder(folder: Path) -> BundleContents:
    sizes = {}
    for name in os.listdir(folder):
        # Desktops leave files such as .DS_Store behind.
        if not name.startswith("."):
            status = os.stat(folder / name)
            if not stat.S_ISREG(status.st_mode):
                raise TamperedBundleError(f"{name!r} is not a regular file.")
            sizes[name] = status.st_size

    def read(name: str) -> bytes:
        with open(folder / name, "rb") as file:
            # One byte more than there was, to notice a file that grows.
            return file.read(sizes[name] + 1)

    return _check(sizes, read)


def _check(sizes: Mapping[str, int], read: Callable[[str], bytes]) -> BundleContents:
    """Read the files of a bundle in the order in which each can be checked against the one before."""
    if MANIFEST_FILE not in sizes:
        raise ForeignBundleError("This is not an edgeopt bundle: it has no manifest.json.")
    if sizes[MANIFEST_FILE] > LARGEST_MANIFEST:
        raise ForeignBundleError(f"manifest.json has {sizes[MANIFEST_FILE]} bytes, more than any bundle needs.")
    manifest = parse_manifest(read(MANIFEST_FILE))
    _check_version(manifest)
    expected = {STATE_FILE, *(signature.file for signature in manifest.signatures.values())}
    if manifest.files.keys() != expected:
        raise ManifestError(f"manifest.json: `files` must list {sorted(expected)}, but lists {sorted(manifest.files)}.")
    unknown = sizes.keys() - expected - {MANIFEST_FILE}
    if unknown:
        raise TamperedBundleError(f"There are files that the manifest does not list: {sorted(unknown)}.")
    contents = {}
    for name, entry in manifest.files.items():
        if sizes.get(name, -1) < entry.bytes:
            found = f"has {sizes[name]} bytes" if name in sizes else "is missing"
            raise TruncatedBundleError(f"{name} {found}; it must have {entry.bytes}. Fetch the bundle again.")
        content = read(name) if sizes[name] == entry.bytes else b""
        if len(content) != entry.bytes or hashlib.sha256(content).hexdigest() != entry.sha256:
            raise TamperedBundleError(f"{name} differs from its SHA-256 in the manifest. Fetch the bundle again.")
        contents[name] = content
    state = decode_state(contents.pop(STATE_FILE), manifest.tensors, manifest.accumulators)
    return BundleContents(manifest, contents, state)


def _check_version(manifest: Manifest) -> None:
    if parse_version(onnxruntime.__version__) < parse_version(manifest.minimum_onnxruntime):
        raise UnsupportedVersionError(
            f"The bundle needs ONNX Runtime {manifest.minimum_onnxruntime} or newer; this is "
            f"{onnxruntime.__version__}. Update the onnxruntime package, or export for a lower opset."
        )


class _BytesSource:
    """A packed bundle in memory."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self.size = len(view)

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
