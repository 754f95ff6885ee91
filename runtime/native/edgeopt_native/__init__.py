"""Fused kernels for bundles of edgeopt: a custom-operator library for ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

__all__ = ["library_path"]


def library_path() -> str:
    """Where the shared library is, for `onnxruntime.SessionOptions.register_custom_ops_library`.

    Raises:
        FileNotFoundError: The package holds none.
    """
    folder = Path(__file__).resolve().parent
    for name in ("libedgeopt_native.so", "libedgeopt_native.dylib", "libedgeopt_native.dll", "edgeopt_native.dll"):
        if (folder / name).is_file():
            return str(folder / name)
    raise FileNotFoundError(f"{folder} holds no shared library; install the package edgeopt-native again.")
