"""Importing costs nothing that is not used, and every name that a module promises is there."""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys

import pytest

import edgeopt
import edgeopt_exporters
import edgeopt_runtime

MODULES = sorted(
    module.name
    for package in (edgeopt, edgeopt_exporters, edgeopt_runtime)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
)


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_the_sdk_imports_without_torch() -> None:
    sdk = [name for name in MODULES if not name.startswith(("edgeopt_exporters.pytorch", "edgeopt.compat.torch"))]
    python(f"import sys, importlib; sys.modules['torch'] = None\nfor name in {sdk!r}: importlib.import_module(name)")


def test_importing_the_top_level_imports_nothing_else() -> None:
    loaded = json.loads(python("import edgeopt, json, sys; print(json.dumps(sorted(sys.modules)))"))
    assert {"numpy", "onnx", "onnxruntime", "torch", "edgeopt_exporters", "edgeopt_runtime"}.isdisjoint(loaded)


@pytest.mark.parametrize("name", ["edgeopt", "edgeopt_exporters", "edgeopt_runtime", *MODULES])
def test_every_public_name_exists(name: str) -> None:
    module = importlib.import_module(name)
    for public in getattr(module, "__all__", ()):
        assert getattr(module, public) is not None, public
