"""What a manifest may say about joined tensors."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from edgeopt_runtime.errors import ManifestError
from edgeopt_runtime.parsing import parse_manifest
from edgeopt_runtime.state import StateBuffers


def document(joined: Any, read: str | None = None) -> str:
    def slot(name: str, **changes: Any) -> dict[str, Any]:
        spec = {"name": f"m.{name}", "role": "optimizer", "dtype": "float32", "shape": [2], "parameter": name}
        return {**spec, "slot": "m", **changes}

    parameters = [
        {"name": name, "role": "parameter", "dtype": "float32", "shape": [2], "trainable": True} for name in "abc"
    ]
    inputs = [{"name": read, "kind": "state"}] if read else []
    return json.dumps(
        {
            "format": "edgeopt",
            "schema_version": 1,
            "opset": 20,
            "ir_version": 9,
            "minimum_onnxruntime": "1.17.0",
            "producer": {},
            "tensors": [*parameters, slot("a"), slot("b"), slot("c", dtype="float64")],
            "accumulators": [],
            "joined": joined,
            "hyperparameters": [],
            "inputs": [],
            "outputs": [],
            "signatures": {"step": {"file": "step.onnx", "inputs": inputs, "outputs": []}},
            "files": {},
        }
    )


GOOD = [{"name": "m.joined", "members": ["m.a", "m.b"]}]


def test_a_joined_tensor_takes_the_place_of_its_members():
    manifest = parse_manifest(document(GOOD, read="m.joined"))
    assert parse_manifest(manifest.to_json()) == manifest
    assert [spec.name for spec in manifest.memory] == ["a", "b", "c", "m.c", "m.joined"]
    assert manifest.memory[-1].shape == (4,)


@pytest.mark.parametrize(
    ("joined", "message"),
    [
        ({}, "an array"),
        ([{"name": "m.joined"}], "members"),
        ([{"name": "m.joined", "members": []}], "no members"),
        ([{"name": "m.joined", "members": ["m.x"]}], "no such tensor"),
        ([{"name": "m.joined", "members": ["m.a", "m.c"]}], "one dtype"),
        ([{"name": "m.joined", "members": ["a", "b"]}], "optimizer state"),
        ([{"name": "m.a", "members": ["m.a", "m.b"]}], "twice"),
        ([{"name": "m.joined", "members": ["m.a", "m.a"]}], "twice"),
        ([*GOOD, {"name": "other", "members": ["m.a"]}], "twice"),
        ([{"name": "m.joined", "members": ["m.a"], "offset": 0}], "unknown"),
    ],
)
def test_contradictions_are_refused(joined, message):
    with pytest.raises(ManifestError, match=message):
        parse_manifest(document(joined))


def test_graphs_do_not_see_the_members():
    with pytest.raises(ManifestError, match=r"no state input"):
        parse_manifest(document(GOOD, read="m.a"))


def test_bfloat16_of_a_joined_tensor_keeps_its_bits():
    manifest = parse_manifest(document(GOOD, read="m.joined").replace('"dtype": "float32"', '"dtype": "bfloat16"'))
    values = {
        f"m.{name}": np.asarray(numbers, ml_dtypes.bfloat16) for name, numbers in {"a": [1, -2], "b": [0.5, 3]}.items()
    }
    state = StateBuffers(manifest, {**values, "a": values["m.a"]})
    assert state.current("m.joined").dtype == state.current("a").dtype == np.uint16
    joined = state.current("m.joined").view(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(joined.astype(np.float32), np.asarray([1, -2, 0.5, 3], np.float32))
