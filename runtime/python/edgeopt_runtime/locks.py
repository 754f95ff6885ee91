"""One writer at a time for a folder, among the threads and processes of a machine."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from edgeopt_runtime import shown
from edgeopt_runtime.errors import StorageError

__all__ = ["exclusive"]

# Longer than any save takes; a writer that was killed holds no lock, as the system takes it back.
PATIENCE = 60.0
PAUSE = 0.01

if sys.platform == "win32":
    import msvcrt

    # Windows locks no folders. The file stays behind: removing it would let two writers hold two files of one name.
    LOCK_FILE = ".edgeopt.lock"

    def _open(folder: Path) -> int:
        return os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT)

    def _take(descriptor: int) -> None:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError from error

    def _release(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

elif sys.platform in ("emscripten", "wasi"):

    def _open(folder: Path) -> int:
        return os.open(folder, os.O_RDONLY)

    def _take(descriptor: int) -> None:
        """There is one process."""

    def _release(descriptor: int) -> None:
        """There is one process."""

else:
    import fcntl

    def _open(folder: Path) -> int:
        return os.open(folder, os.O_RDONLY)

    def _take(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _release(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[bool]:
    """Wait until nobody else holds the folder, and hold it; whether it is held.

    On a file system that knows no locks (some network mounts) it is not, and only one process may write.

    Raises:
        OSError: There is no such folder.
        StorageError: Someone else has held it for a minute.
    """
    deadline = time.monotonic() + PATIENCE
    held = False
    descriptor = _open(folder)
    try:
        while True:
            try:
                _take(descriptor)
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise StorageError(
                        f"Someone else has been saving to {shown.where(folder)} for {PATIENCE:.0f} seconds. Nothing "
                        "was written; try again, or save somewhere else."
                    ) from error
                time.sleep(PAUSE)
            except OSError:
                break
            else:
                held = True
                break
        try:
            yield held
        finally:
            # A child that was forked meanwhile holds the descriptor too; the lock must not stay with it.
            with contextlib.suppress(OSError):
                _release(descriptor)
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)
