from __future__ import annotations

import inspect
import json
import subprocess
import sys
from importlib.metadata import version

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


def test_all_lists_the_public_names():
    public = {
        name
        for name, value in vars(edgeopt_runtime).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }
    assert public | {"__version__"} == set(edgeopt_runtime.__all__)
    assert list(edgeopt_runtime.__all__) == sorted(edgeopt_runtime.__all__)


def test_every_module_names_what_it_offers():
    for name, module in vars(edgeopt_runtime).items():
        if inspect.ismodule(module):
            assert all(hasattr(module, public) for public in module.__all__), name


def test_the_version_is_that_of_the_distribution():
    assert edgeopt_runtime.__version__ == version("edgeopt")


def test_every_error_has_a_code_of_its_own_and_stands_in_the_drawing():
    classes = [value for value in vars(errors).values() if inspect.isclass(value)]
    assert {value.__name__ for value in classes} == set(errors.__all__)
    assert all(issubclass(value, errors.EdgeoptError) for value in classes)
    codes = [value.code for value in classes]
    assert len(set(codes)) == len(codes)
    for value in classes:
        (line,) = [line for line in errors.__doc__.splitlines() if f" {value.__name__} " in line]
        assert f" {value.code}" in line
        assert set(edgeopt_runtime.__all__) >= {value.__name__}
