"""Native kernels: whether the library of the package ``edgeopt-native`` serves a session, and if not, why.

Every fused operation of a bundle has a body of plain operators, which runs where no kernel does. So nothing that goes
wrong here is an error: it is said in `Kernels`, and the plain bodies run.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as native

from edgeopt_runtime.errors import ProviderError

__all__ = ["KernelChoice", "Kernels", "Library", "find_library"]

KernelChoice = Literal["auto", "plain"]

# The domain of fused operations.
DOMAIN = "edgeopt::"

# What may come of a library that is there and does not fit.
_MISFITS: tuple[type[Exception], ...] = (native.Fail, native.InvalidArgument, RuntimeError, OSError, AttributeError)


@dataclass(frozen=True)
class Kernels:
    """Which fused operations of a bundle run as native kernels.

    Attributes:
        library: The path of the shared library; None where there is none, or it does not serve the session.
        native: The operations that run as native kernels.
        plain: Those that run as their bodies of plain operators, each with the reason.
    """

    library: str | None
    native: tuple[str, ...]
    plain: Mapping[str, str]


@dataclass
class Library:
    """The shared library as a session uses it.

    Attributes:
        path: Where it is; None without one.
        why_not: Why there is none.
        operators: The operations for which it has kernels.
        refused: Why a graph was opened without it, by file.
    """

    path: str | None
    why_not: str = ""
    operators: frozenset[str] = frozenset()
    refused: dict[str, str] = field(default_factory=dict)

    def register(self, settings: onnxruntime.SessionOptions) -> None:
        """Add its operators to those that a session knows."""
        settings.register_custom_ops_library(self.path)

    def report(self, operators: Mapping[str, Collection[str]]) -> Kernels:
        """What runs how, of the operators of graphs by file."""
        calls = {name: file for file, names in operators.items() for name in names if name.startswith(DOMAIN)}
        served: list[str] = []
        plain: dict[str, str] = {}
        for full, file in sorted(calls.items()):
            name = full.removeprefix(DOMAIN)
            if self.path is None:
                plain[name] = self.why_not
            elif name not in self.operators:
                plain[name] = "the library has no kernel of this name; where parts of its body have one, they use it"
            elif file in self.refused:
                plain[name] = self.refused[file]
            else:
                served.append(name)
        return Kernels(self.path, tuple(served), plain)


def find_library(choice: KernelChoice, cpu_only: bool) -> Library:
    """The library that a session is to use.

    Args:
        choice: ``"auto"`` takes the package ``edgeopt-native`` where it is installed and fits, ``"plain"`` does not.
        cpu_only: Whether the session runs on the CPU alone; the kernels are for its memory.

    Raises:
        ProviderError: The choice is another.
    """
    if choice not in ("auto", "plain"):
        raise ProviderError(f'`kernels` must be "auto" or "plain", not {choice!r}.')
    if choice == "plain":
        return Library(None, 'the session was loaded with kernels="plain"')
    if not cpu_only:
        return Library(None, "the kernels are for the CPU, and the session has another execution provider")
    try:
        package = importlib.import_module("edgeopt_native")
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == "edgeopt_native"
        why = "the package edgeopt-native is not installed" if absent else f"edgeopt_native cannot be imported: {error}"
        return Library(None, why)
    try:
        library = Library(package.library_path(), operators=frozenset(package.operators()))
        library.register(onnxruntime.SessionOptions())
    except _MISFITS as error:
        version = getattr(package, "__version__", "of an unknown version")
        return Library(
            None,
            f"edgeopt_native {version} does not fit onnxruntime {onnxruntime.__version__} or this machine: {error}. "
            "Install a release of edgeopt-native for it",
        )
    return library
