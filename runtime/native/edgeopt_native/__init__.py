"""Fused kernels for bundles of edgeopt: a custom-operator library for ONNX Runtime."""

from __future__ import annotations

import ctypes
from pathlib import Path

__all__ = ["__version__", "library_path", "operators"]

__version__ = "0.1.0"

_NAMES = ("libedgeopt_native.so", "libedgeopt_native.dylib", "libedgeopt_native.dll")


def library_path() -> str:
    """Where the shared library is, for `onnxruntime.SessionOptions.register_custom_ops_library`.

    Raises:
        FileNotFoundError: The package holds none.
    """
    folder = Path(__file__).resolve().parent
    for name in _NAMES:
        if (folder / name).is_file():
            return str(folder / name)
    raise FileNotFoundError(f"{folder} holds no shared library; install the package edgeopt-native again.")


def operators() -> tuple[str, ...]:
    """The operators of the domain `edgeopt` for which there are kernels.

    Raises:
        FileNotFoundError: The package holds no library.
        OSError: The library cannot be loaded here.
    """
    listing = ctypes.CDLL(library_path()).edgeopt_native_operators
    listing.restype = ctypes.c_char_p
    return tuple(listing().decode().split())
