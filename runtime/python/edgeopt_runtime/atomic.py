"""Replacing a file so that at every moment either the old or the new one is there, whole.

It is written next to its destination, flushed to the disk and renamed over it, which POSIX and NTFS do in one step.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from edgeopt_runtime import shown
from edgeopt_runtime.errors import StorageError
from edgeopt_runtime.tensors import Buffer

__all__ = [
    "kind_of",
    "put_in_place",
    "remove_folder",
    "remove_stale",
    "replace_file",
    "storage_errors",
    "sync_folder",
    "temporary_in",
    "write_new",
]

PREFIX = ".edgeopt-"
SUFFIX = ".tmp"
# Leftovers of a process that was killed while saving; nothing takes an hour to save.
STALE_SECONDS = 3600.0
# One call of write(2) at most; also what Linux would cut a longer one down to is far above this.
LARGEST_WRITE = 1 << 24
# Windows refuses to replace a file while someone reads it, and virus scanners read whatever is new.
WINDOWS_PATIENCE = 10.0 if sys.platform == "win32" else 0.0

KINDS = (
    (stat.S_ISDIR, "folder"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
    (stat.S_ISFIFO, "pipe"),
    (stat.S_ISSOCK, "socket"),
)


def replace_file(path: Path, pieces: Iterable[Buffer]) -> None:
    """Write ``pieces`` to the file ``path``, or leave what was there. A link to a file stays; the file is replaced.

    Raises:
        StorageError: The operating system refused, and the message carries its words; or there is something else than
            a file: a folder, a device, a pipe or a socket.
    """
    with storage_errors(path):
        kind = kind_of(path)
        if kind not in (None, "file"):
            raise StorageError(
                f"{shown.where(path)} is a {kind}, which saving would remove. Nothing was written; give the name of a "
                "file."
            )
        path = Path(os.path.realpath(path))
        temporary = temporary_in(path.parent)
        try:
            remove_stale(path.parent)
            write_new(temporary, pieces)
            put_in_place(temporary, path)
            sync_folder(path.parent)
        finally:
            # After the rename there is nothing left to remove.
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def kind_of(path: Path) -> str | None:
    """What is there: ``file``, ``folder``, ``device``, ``pipe``, ``socket``, or None for nothing; links are followed.

    Raises:
        OSError: It cannot be known: links lead in a circle, or no file can have this name.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error)) from error
    return next((kind for is_kind, kind in KINDS if is_kind(mode)), "file")


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """What the operating system refuses while ``path`` is written becomes a `StorageError`."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"Could not write {shown.where(path)}: {error.strerror or error}. What was there before is unchanged. "
            "Check the name, the free space and the permissions of the folder, or save somewhere else."
        ) from error


def temporary_in(folder: Path) -> Path:
    """A name in a folder that nobody else uses, and that readers of the folder pass over."""
    return folder / f"{PREFIX}{os.urandom(8).hex()}{SUFFIX}"


def write_new(path: Path, pieces: Iterable[Buffer]) -> None:
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


def put_in_place(temporary: Path, path: Path) -> None:
    """Rename a file over another."""
    deadline = time.monotonic() + WINDOWS_PATIENCE
    while True:
        try:
            os.replace(temporary, path)
        except PermissionError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.01)
        else:
            return


def sync_folder(path: Path) -> None:
    """Flush a rename to the disk, where the file system can do that (not on Windows, nor on some FUSE mounts).

    Where it cannot, a power failure may bring the old bundle back, but never half of one.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_folder(path: Path) -> None:
    """Remove a folder of plain files; quietly if there is none."""
    if path.is_dir():
        for name in os.listdir(path):
            os.unlink(path / name)
        os.rmdir(path)


def remove_stale(folder: Path, seconds: float = STALE_SECONDS) -> None:
    """Remove what processes left behind that were killed while they saved, an hour ago or earlier."""
    now = time.time()
    for name in os.listdir(folder):
        if name.startswith(PREFIX) and name.endswith(SUFFIX):
            leftover = folder / name
            with contextlib.suppress(OSError):
                if now - leftover.stat().st_mtime > seconds:
                    remove_folder(leftover) if leftover.is_dir() else os.unlink(leftover)
