"""Where results go, looked at before anything is computed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from edgeopt.cli.errors import CommandError
from edgeopt_runtime.parsing import STATE_FILE

__all__ = ["check_bundle_output", "check_file_output", "size_of"]

MANIFEST = "manifest.json"


def check_bundle_output(path: Path) -> None:
    """Make sure that a bundle can be written here, as `Bundle.save` will.

    Raises:
        CommandError: It cannot; what is there is left as it is.
    """
    if path.is_dir():
        if any(path.iterdir()) and not (path / MANIFEST).exists() and not (path / STATE_FILE).exists():
            raise CommandError(f"{path} is a folder with other things in it; give a new name, or NAME.edgeopt.")
        _check_writable(path, path)
        return
    check_file_output(path)


def check_file_output(path: Path) -> None:
    """Make sure that a file can be written here.

    Raises:
        CommandError: It cannot; what is there is left as it is.
    """
    if path.is_dir():
        raise CommandError(f"{path} is a folder; give the name of a file in it.")
    if path.exists() and not path.is_file():
        raise CommandError(f"{path} is no ordinary file; give another name.")
    parent = path.parent
    if not parent.is_dir():
        raise CommandError(f"{path} cannot be written: there is no folder {parent}; make it first.")
    _check_writable(path, parent)


def size_of(bundle: Path) -> int:
    """Bytes on disk of a packed bundle or a folder."""
    return sum(file.stat().st_size for file in bundle.iterdir()) if bundle.is_dir() else bundle.stat().st_size


def _check_writable(path: Path, folder: Path) -> None:
    """Try it: permissions, read-only file systems and quotas cannot be asked for in any other way."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror or error}.") from error
