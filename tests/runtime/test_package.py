from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from importlib.metadata import version
from typing import Any, get_origin

import pytest

import edgeopt_runtime
from edgeopt_runtime import errors

LIST_MODULES = """
import json, sys
import numpy, onnxruntime, safetensors
before = set(sys.modules)
import edgeopt_runtime
session = edgeopt_runtime.TrainingSession.load(sys.argv[1])
session.save(sys.argv[1])
session.export_inference(sys.argv[1] + ".onnx")
session.predict([[[0.0, 0.0, 0.0]]])
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


def test_only_the_promised_packages_are_imported(bundle_path):
    result = subprocess.run(
        [sys.executable, "-c", LIST_MODULES, str(bundle_path)], check=True, capture_output=True, text=True
    )
    foreign = set(json.loads(result.stdout)) - set(sys.stdlib_module_names)
    assert foreign - {"numpy", "onnxruntime", "safetensors"} == {"edgeopt_runtime"}


def test_all_names_what_there_is():
    for name in edgeopt_runtime.__all__:
        value = getattr(edgeopt_runtime, name)
        assert value is getattr(edgeopt_runtime, name)
        assert name in dir(edgeopt_runtime)
        assert name == "__version__" or value.__name__ == name
    assert list(edgeopt_runtime.__all__) == sorted(edgeopt_runtime.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Trainer'"):
        edgeopt_runtime.Trainer  # noqa: B018 - the access is the test


def test_every_module_names_what_it_offers():
    for info in pkgutil.iter_modules(edgeopt_runtime.__path__, "edgeopt_runtime."):
        module = importlib.import_module(info.name)
        for name in module.__all__:
            value = getattr(module, name)
            # Aliases such as `Callable[...]` pass for classes in Python 3.10.
            own = (isinstance(value, type) and get_origin(value) is None) or inspect.isfunction(value)
            # A package offers what its modules define.
            assert not own or value.__module__ == info.name or value.__module__.startswith(f"{info.name}."), name


def test_errors_and_manifest_do_not_need_onnxruntime():
    code = "import sys, edgeopt_runtime, edgeopt_runtime.errors, edgeopt_runtime.manifest; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "onnxruntime" not in result.stdout.split()


def test_the_version_is_that_of_the_distribution():
    assert edgeopt_runtime.__version__ == version("edgeopt")


def test_every_error_has_a_code_of_its_own_and_stands_in_the_drawing():
    classes: list[Any] = [value for value in vars(errors).values() if inspect.isclass(value)]
    assert {value.__name__ for value in classes} == set(errors.__all__)
    assert all(issubclass(value, errors.EdgeoptError) for value in classes)
    codes = [value.code for value in classes]
    assert len(set(codes)) == len(codes)
    for value in classes:
        (line,) = [line for line in errors.__doc__.splitlines() if f" {value.__name__} " in line]
        assert f" {value.code}" in line
        assert set(edgeopt_runtime.__all__) >= {value.__name__}
