"""Replacing a file or a folder so that at every moment either the old or the new one is there, whole.

A file is written next to its destination, flushed to the disk and renamed over it, which POSIX and NTFS do in one
step. No system renames over a folder that is not empty, so a folder takes two renames, the old one aside and the new
one in place. If the power fails between them, the folder set aside (`backup_of`) is what readers use.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from edgeopt_runtime.errors import StorageError
from edgeopt_runtime.tensors import Buffer

__all__ = ["backup_of", "replace_file", "replace_folder"]

PREFIX = ".edgeopt-"
SUFFIX = ".tmp"
# Leftovers of a process that was killed while saving; nothing takes an hour to save.
STALE_SECONDS = 3600.0
# One call of write(2) at most; also what Linux would cut a longer one down to is far above this.
LARGEST_WRITE = 1 << 24


def replace_file(path: Path, pieces: Iterable[Buffer]) -> None:
    """Write ``pieces`` to the file ``path``, or leave what was there.

    Raises:
        StorageError: The operating system refused; the message carries its words.
    """
    path = Path(os.path.realpath(path))
    temporary = _temporary(path.parent)
    try:
        _remove_stale(path.parent)
        _write(temporary, pieces)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise _storage_error(path, error) from error
    finally:
        # After the rename there is nothing left to remove.
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def replace_folder(path: Path, files: Mapping[str, Iterable[Buffer]], known: Collection[str]) -> None:
    """Make ``path`` a folder that holds exactly ``files``, or leave what was there.

    A folder that is there already is replaced only if all it holds are files with ``known`` names.

    Raises:
        StorageError: The operating system refused, or the folder holds other files.
    """
    path = Path(os.path.realpath(path))
    backup = backup_of(path)
    temporary = _temporary(path.parent)
    try:
        _remove_stale(path.parent)
        if not path.exists() and backup.is_dir():
            os.rename(backup, path)
        if path.exists():
            _check_replaceable(path, known)
        os.mkdir(temporary)
        for name, pieces in files.items():
            _write(temporary / name, pieces)
        _sync_folder(temporary)
        if path.exists():
            _remove_folder(backup)
            os.rename(path, backup)
            try:
                os.rename(temporary, path)
            except OSError:
                os.rename(backup, path)
                raise
        else:
            os.rename(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise _storage_error(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            _remove_folder(temporary)
    with contextlib.suppress(OSError):
        _remove_folder(backup)


def backup_of(path: Path) -> Path:
    """Where a folder lies for the moment in which its successor is put in place."""
    return path.with_name(f".{path.name}.old")


def _temporary(folder: Path) -> Path:
    return folder / f"{PREFIX}{os.urandom(8).hex()}{SUFFIX}"


def _write(path: Path, pieces: Iterable[Buffer]) -> None:
    """Write a new file and flush it to the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        for piece in pieces:
            view = memoryview(piece)
            while len(view):
                view = view[os.write(descriptor, view[:LARGEST_WRITE]) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(path: Path) -> None:
    """Flush a rename to the disk, where the file system can do that (not on Windows, nor on some FUSE mounts).

    Where it cannot, a power failure may bring the old bundle back, but never half of one.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _check_replaceable(path: Path, known: Collection[str]) -> None:
    others = sorted(name for name in os.listdir(path) if name not in known)
    if others:
        raise StorageError(
            f"The folder {path} holds files that are not part of a bundle ({', '.join(others[:3])}), and saving would "
            "remove them. Choose a new folder."
        )


def _remove_folder(path: Path) -> None:
    """Remove a folder of plain files; quietly if there is none."""
    if path.is_dir():
        for name in os.listdir(path):
            os.unlink(path / name)
        os.rmdir(path)


def _remove_stale(folder: Path) -> None:
    now = time.time()
    for name in os.listdir(folder):
        if name.startswith(PREFIX) and name.endswith(SUFFIX):
            leftover = folder / name
            with contextlib.suppress(OSError):
                if now - leftover.stat().st_mtime > STALE_SECONDS:
                    _remove_folder(leftover) if leftover.is_dir() else os.unlink(leftover)


def _storage_error(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"Could not write {path}: {error.strerror or error}. What was there before is unchanged. Check the free space "
        "and the permissions of the folder, or save somewhere else."
    )
