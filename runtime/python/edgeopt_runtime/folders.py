"""Bundles as folders, which may be read while they are saved, and saved by several at once.

No system replaces several files in one step, so one of them decides: the folder holds what ``manifest.json`` lists,
by SHA-256. A save writes each file that changed under a name with its hash, ``state.0123456789abcdef.safetensors``,
then replaces the manifest, and only then gives the files their plain names and removes what is no longer listed.
Whoever was killed in between leaves files that nobody lists. Readers look for a file under the name with its hash
first, then under the plain one, and open all files before they read any: if the manifest is still the same then, so are
the files, as nothing is ever written into a file that is there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from edgeopt_runtime import shown
from edgeopt_runtime.atomic import (
    STALE_SECONDS,
    kind_of,
    put_in_place,
    remove_folder,
    remove_stale,
    storage_errors,
    sync_folder,
    temporary_in,
    write_new,
)
from edgeopt_runtime.errors import BundleError, ForeignBundleError, StorageError, TamperedBundleError
from edgeopt_runtime.locks import exclusive
from edgeopt_runtime.manifest import FileEntry, check_checksum
from edgeopt_runtime.parsing import LARGEST_MANIFEST
from edgeopt_runtime.tensors import Buffer

__all__ = ["MANIFEST_FILE", "Changed", "Content", "FolderReader", "open_regular", "replace_folder"]

MANIFEST_FILE = "manifest.json"
# Digits of the hash in a name: enough that two versions of a file never share one; the content is checked in full.
DIGITS = 16
CHUNK = 1 << 20


class Content(NamedTuple):
    """What a file shall hold: its bytes in pieces, and its size and hash."""

    pieces: Sequence[Buffer]
    entry: FileEntry


class Changed(Exception):  # noqa: N818 # nothing failed
    """The bundle was saved anew while its files were opened."""


class FolderReader:
    """A folder at one moment.

    Args:
        folder: Where it is.
        known: Names that files of a bundle may have.
        stack: Closes the files.
    """

    def __init__(self, folder: Path, known: Collection[str], stack: contextlib.ExitStack) -> None:
        self._folder = folder
        self._known = known
        self._stack = stack
        self._files: dict[str, BinaryIO] = {}

    def manifest(self) -> bytes:
        """The manifest; of one that is too large, one byte more than a manifest may have.

        Raises:
            ForeignBundleError: There is none.
        """
        try:
            # Open until the other files are, so that no other manifest can be the same file to the system.
            self._manifest = self._stack.enter_context(open_regular(self._folder / MANIFEST_FILE))
        except FileNotFoundError as error:
            raise ForeignBundleError("This is not an edgeopt bundle: it has no manifest.json.") from error
        self._text = self._manifest.read(LARGEST_MANIFEST + 1)
        return self._text

    def check_manifest(self) -> None:
        """Compare the manifest with its own checksum; in an archive the CRC-32 of the entry does this.

        Raises:
            TamperedBundleError: They differ.
        """
        check_checksum(self._text)

    def others(self, listed: Collection[str]) -> Collection[str]:
        """Names of files that belong to no bundle.

        Those of a bundle that are not ``listed`` are left from an earlier one, and never opened. Desktops leave files
        such as .DS_Store behind.
        """
        return _others(self._folder, self._known)

    def open(self, entries: Mapping[str, FileEntry]) -> dict[str, int]:
        """Open the files of a manifest; the size in bytes of each that is there.

        Raises:
            Changed: The manifest is another one by now.
        """
        for name, entry in entries.items():
            for candidate in (_hashed(name, entry.sha256), name):
                with contextlib.suppress(FileNotFoundError):
                    self._files[name] = self._stack.enter_context(
                        open_regular(self._folder / candidate, TamperedBundleError)
                    )
                    break
        with contextlib.closing(self._manifest), open_regular(self._folder / MANIFEST_FILE) as now:
            if not os.path.sameopenfile(self._manifest.fileno(), now.fileno()):
                raise Changed
        return {name: os.fstat(file.fileno()).st_size for name, file in self._files.items()}

    def read(self, name: str, size: int) -> bytes:
        """The first ``size`` bytes of a file that was opened, or as many as there are."""
        return self._files[name].read(size)


def replace_folder(path: Path, manifest: bytes, files: Mapping[str, Content], known: Collection[str]) -> None:
    """Make ``path`` a folder that holds the bundle, or leave what was there.

    Args:
        path: Where.
        manifest: The text of the manifest, which lists the files.
        files: The other files by name.
        known: Names that files of a bundle may have.

    Raises:
        StorageError: The operating system refused, or the folder holds other files.
    """
    with storage_errors(path):
        path = Path(os.path.realpath(path))
        if kind_of(path) is not None or not _create(path, manifest, files):
            with exclusive(path) as alone:
                with contextlib.suppress(OSError):
                    remove_stale(path.parent)
                    # Whoever else wrote here is dead.
                    remove_stale(path, 0.0 if alone else STALE_SECONDS)
                _update(path, manifest, files, known)


def open_regular(path: Path, refusal: type[BundleError] = ForeignBundleError) -> BinaryIO:
    """Open a file for reading, and nothing that is not one: a pipe would block, a device do whatever devices do.

    Raises:
        BundleError: ``refusal``, if it is something else.
        OSError: It cannot be opened.
    """
    _check_regular(path, os.stat(path), refusal)
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags)
    try:
        _check_regular(path, os.fstat(descriptor), refusal)
    except BundleError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def _check_regular(path: Path, status: os.stat_result, refusal: type[BundleError]) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise refusal(f"{shown.value(path.name)} is not a regular file.")


def _create(path: Path, manifest: bytes, files: Mapping[str, Content]) -> bool:
    """Put a new folder in place; False if another one is there by then."""
    temporary = temporary_in(path.parent)
    try:
        remove_stale(path.parent)
        os.mkdir(temporary)
        for name, content in files.items():
            write_new(temporary / name, content.pieces)
        write_new(temporary / MANIFEST_FILE, [manifest])
        sync_folder(temporary)
        try:
            os.rename(temporary, path)
        except OSError:
            if kind_of(path) != "folder":
                raise
            return False
        sync_folder(path.parent)
        return True
    finally:
        with contextlib.suppress(OSError):
            remove_folder(temporary)


def _update(path: Path, manifest: bytes, files: Mapping[str, Content], known: Collection[str]) -> None:
    others = _others(path, known)
    if others:
        raise StorageError(
            f"The folder {shown.where(path)} holds files that are not part of a bundle ({shown.some(others)}). "
            "Choose a new folder."
        )
    listed = _manifest_in(path)
    written = []
    try:
        for name, content in files.items():
            plain, hashed = path / name, path / _hashed(name, content.entry.sha256)
            # Graphs mostly stay, and then so do their files. What the manifest does not list need not be looked at.
            if content.entry.sha256.encode() not in listed:
                written.append(hashed)
                _put(hashed, content.pieces)
            elif _holds(plain, content.entry):
                _remove(hashed)
            elif not _holds(hashed, content.entry):
                _put(hashed, content.pieces)
        sync_folder(path)
        _put(path / MANIFEST_FILE, [manifest])
        sync_folder(path)
    finally:
        # An interrupt may come at any moment; with its manifest in place, the folder is the new bundle.
        with contextlib.suppress(OSError):
            if _manifest_in(path) != manifest:
                for hashed in written:
                    _remove(hashed)
    with contextlib.suppress(OSError):
        _tidy(path, files)


def _manifest_in(folder: Path) -> bytes:
    try:
        with open_regular(folder / MANIFEST_FILE) as file:
            return file.read(LARGEST_MANIFEST + 1)
    except FileNotFoundError:
        return b""


def _put(path: Path, pieces: Sequence[Buffer]) -> None:
    temporary = temporary_in(path.parent)
    try:
        write_new(temporary, pieces)
        put_in_place(temporary, path)
    finally:
        _remove(temporary)


def _tidy(path: Path, files: Mapping[str, Content]) -> None:
    """Give the files their plain names, and remove those of earlier bundles."""
    for name, content in files.items():
        hashed = path / _hashed(name, content.entry.sha256)
        if hashed.exists():
            os.replace(hashed, path / name)
    for name in os.listdir(path):
        if not name.startswith(".") and name not in files and name != MANIFEST_FILE:
            _remove(path / name)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _holds(path: Path, entry: FileEntry) -> bool:
    """Whether a file holds exactly this already, as graphs mostly do."""
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size != entry.bytes:
                return False
            digest = hashlib.sha256()
            for chunk in iter(lambda: file.read(CHUNK), b""):
                digest.update(chunk)
            return digest.hexdigest() == entry.sha256
    except (OSError, BundleError):
        return False


def _hashed(name: str, digest: str) -> str:
    stem, _, suffix = name.rpartition(".")
    return f"{stem}.{digest[:DIGITS]}.{suffix}"


def _others(folder: Path, known: Collection[str]) -> list[str]:
    names = (name for name in os.listdir(folder) if not name.startswith("."))
    return [name for name in names if re.sub(rf"\.[0-9a-f]{{{DIGITS}}}(?=\.\w+$)", "", name) not in known]
