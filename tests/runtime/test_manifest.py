from __future__ import annotations

import json
from dataclasses import replace

import pytest

from edgeopt_runtime import ForeignBundleError, ManifestError, UnsupportedVersionError
from edgeopt_runtime.manifest import FileEntry
from edgeopt_runtime.parsing import parse_manifest, parse_version


@pytest.fixture
def document(manifest):
    entry = FileEntry(1, "0" * 64)
    return json.loads(replace(manifest, files={"state.safetensors": entry}).to_json())


def test_what_is_written_is_read_back(manifest):
    assert parse_manifest(manifest.to_json()) == manifest
    assert parse_manifest(manifest.to_json()).to_json() == manifest.to_json()


def test_numbers_survive_to_the_last_bit(manifest):
    values = [0.1, 1e-300, 5e-324, 1.7976931348623157e308, -0.0, 3]
    specs = tuple(
        replace(manifest.hyperparameters[0], name=f"h{index}", default=value) for index, value in enumerate(values)
    )
    changed = replace(manifest, hyperparameters=specs, signatures={"predict": manifest.signatures["predict"]})
    assert [repr(spec.default) for spec in parse_manifest(changed.to_json()).hyperparameters] == list(map(repr, values))


def test_only_the_fields_a_record_uses_are_written(document):
    by_name = {entry["name"]: entry for entry in document["tensors"]}
    assert by_name["weight"] == {
        "name": "weight",
        "role": "parameter",
        "dtype": "float32",
        "shape": [3, 2],
        "trainable": True,
    }
    assert by_name["step"] == {"name": "step", "role": "counter", "dtype": "int64", "shape": []}
    assert document["signatures"]["step"]["outputs"][-1] == {"name": "lr", "kind": "metric"}


REMOVE = object()
NEXT_WEIGHT = {"name": "next.weight", "kind": "state", "tensor": "weight"}


def hessian(name: str, tensor: str | None) -> dict:
    """A signature that takes one vector."""
    port = {"name": name, "kind": "vector", **({} if tensor is None else {"tensor": tensor})}
    return {"file": "hessian_vector.onnx", "inputs": [port], "outputs": []}


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["opset"], REMOVE, "`opset` is missing"),
        (["opset"], "20", "`opset` must be a whole number"),
        (["opset"], True, "`opset` must be a whole number"),
        (["ir_version"], 0, "`ir_version` must be a whole number from 1"),
        (["comment"], "hello", "`comment` is unknown"),
        (["minimum_onnxruntime"], "new", "`minimum_onnxruntime` must be a version"),
        (["minimum_onnxruntime"], "1.٣", "`minimum_onnxruntime` must be a version"),
        (["producer"], [], "`producer` must be an object"),
        (["producer", "edgeopt"], 1, "`producer.edgeopt` must be a string"),
        (["tensors"], {}, "`tensors` must be an array"),
        (["tensors", 0], "weight", r"`tensors\[0\]` must be an object"),
        (["tensors", 0, "name"], "", r"`tensors\[0\].name` must be a printable name"),
        (["tensors", 0, "name"], "a\nb", "must be a printable name"),
        (["tensors", 0, "name"], "a" * 1025, "must be a printable name"),
        (["tensors", 0, "name"], "\ud800", "surrogates"),
        (["tensors", 0, "role"], "accumulator", r"`tensors\[0\].role` must be one of parameter"),
        (["tensors", 0, "role"], ["parameter"], r"`tensors\[0\].role` must be one of parameter"),
        (["tensors", 0, "dtype"], "float31", r"`tensors\[0\].dtype` must be one of float32"),
        (["tensors", 0, "shape"], [3, "n"], r"`tensors\[0\].shape\[1\]` must be a whole number"),
        (["tensors", 0, "shape"], [3, -1], r"`tensors\[0\].shape\[1\]` must be a whole number"),
        (["tensors", 0, "shape"], [2.0], "must be a whole number"),
        (["tensors", 0, "shape"], [2**40, 2**40], "fits into memory"),
        (["tensors", 0, "trainable"], 1, "must be true or false"),
        (["tensors", 0, "slots"], "momentum", r"`tensors\[0\].slots` is unknown"),
        (["tensors", 3, "trainable"], True, "`tensors: input_mean` is trainable but not a parameter"),
        (["tensors", 4, "parameter"], "step", "belongs to 'step', which is not a parameter"),
        (["tensors", 1, "name"], "weight", "use the name 'weight' twice"),
        (["tensors", 6, "dtype"], "float32", "must be of a type of whole numbers"),
        (["accumulators", 0, "shape"], [3000, 2000], "must have the shape of its parameter"),
        (["accumulators", 2, "shape"], [1], "must have the shape of its parameter, or none"),
        (
            ["accumulators", 0],
            {"name": "sketch", "role": "accumulator", "dtype": "float32", "shape": [2000, 2000], "slot": "sketch"},
            "have 4000003 elements, which is far more than the",
        ),
        (["accumulators", 0, "role"], "buffer", "must be one of accumulator"),
        (["accumulators", 0, "parameter"], "gone", "belongs to 'gone'"),
        (["hyperparameters", 0, "default"], "0.1", r"`hyperparameters\[0\].default` must be a number"),
        (["hyperparameters", 0, "default"], False, "must be a number"),
        (["hyperparameters", 0, "default"], 10**400, "must be a finite number"),
        (["hyperparameters", 0, "dtype"], "bool", "a type of number that numpy has"),
        (["hyperparameters", 0, "dtype"], "int64", "must be a whole number"),
        (["hyperparameters", 0, "name"], "x", "use the name 'x' twice"),
        (["inputs", 0, "kind"], "state", "must be one of model, loss"),
        (["inputs", 0, "shape"], [None, 3], "must be a whole number"),
        (["inputs", 0, "shape"], ["", 3], "must be a printable name"),
        (["outputs", 0, "dtype"], None, r"`outputs\[0\].dtype` must be one of"),
        (["signatures"], {}, "`signatures` names no graph"),
        (["signatures", "train"], {}, "`signatures` must be one of step"),
        (["signatures", "step", "file"], "../step.onnx", "`signatures.step.file` must be one of step.onnx"),
        (["signatures", "step", "file"], "predict.onnx", "`signatures.step.file` must be one of step.onnx"),
        (["signatures", "step", "inputs", 0, "kind"], "weight", "must be one of state, batch, hyper"),
        (["signatures", "step", "inputs", 0, "name"], "gone", "wants 'gone', and there is no state input"),
        (["signatures", "step", "inputs", 0, "kind"], "batch", "wants 'weight', and there is no batch input"),
        (["signatures", "step", "inputs", 1, "name"], "weight", "use the name 'weight' twice"),
        (["signatures", "predict", "inputs", 3, "name"], "target", "wants 'target', and there is no batch input"),
        (["signatures", "step", "outputs", 0, "tensor"], REMOVE, "replaces the tensor None"),
        (["signatures", "step", "outputs", 0, "tensor"], "bias", "use the name 'bias' twice"),
        (["signatures", "step", "outputs", 0, "kind"], "output", "of kind output, which step cannot give"),
        (["signatures", "step", "outputs", 0, "kind"], "metric", "with `tensor`, which only state outputs have"),
        (["signatures", "step", "outputs", 0, "weight"], "loss", "with `weight`, which only metrics have"),
        (["signatures", "step", "outputs", -1, "weight"], "loss", "metric 'lr' without a weight among the outputs"),
        (["signatures", "apply", "outputs", -1, "kind"], "weight", "of kind weight, which apply cannot give"),
        (["signatures", "evaluate", "outputs", 0, "weight"], REMOVE, "metric 'loss' without a weight"),
        (["signatures", "evaluate", "outputs", 0, "weight"], "loss", "metric 'loss' without a weight"),
        (["signatures", "predict", "outputs", 0, "name"], "z", "'z', which is not among the model's outputs"),
        (["signatures", "predict", "outputs", 0], NEXT_WEIGHT, "predict changes nothing but the count of draws"),
        (["signatures", "evaluate", "outputs", 0], NEXT_WEIGHT, "evaluate changes nothing but the count of draws"),
        (["signatures", "step", "inputs", 0, "kind"], "vector", "the vector 'weight', which only hessian_vector takes"),
        (["signatures", "step", "inputs", 0, "tensor"], "weight", "with `tensor`, which only vectors have"),
        (["signatures", "hessian_vector"], hessian("v", "input_mean"), "for 'input_mean', which is not a parameter"),
        (["signatures", "hessian_vector"], hessian("v", None), "for None, which is not a parameter"),
        (["signatures", "hessian_vector"], hessian("x", "weight"), "'x', which is also the name of another input"),
        (["files", "state.safetensors", "bytes"], -1, "`files.state.safetensors.bytes` must be a whole number"),
        (["files", "state.safetensors", "sha256"], "0" * 63, "must be 64 lower-case hexadecimal digits"),
        (["files", "state.safetensors", "sha256"], "A" * 64, "must be 64 lower-case hexadecimal digits"),
    ],
)
def test_each_wrong_field_is_named(document, path, value, words):
    target = document
    for key in path[:-1]:
        target = target[key]
    if value is REMOVE:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    with pytest.raises(ManifestError, match=words):
        parse_manifest(json.dumps(document))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"[1, 2",
        b"[]",
        b"{}",
        b'{"format": "other"}',
        b'{"format": "edgeopt", "format": "edgeopt"}',
        b'{"format": "edgeopt", "schema_version": NaN}',
        b'{"format": "edgeopt", "schema_version": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
    ],
)
def test_other_texts_are_foreign(text):
    with pytest.raises(ForeignBundleError, match=r"manifest\.json"):
        parse_manifest(text)


def test_a_newer_schema_is_told_apart(document):
    document["schema_version"] = 3
    document["something"] = "new"
    with pytest.raises(UnsupportedVersionError, match="schema version 3"):
        parse_manifest(json.dumps(document))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("1.17.0", (1, 17, 0)), ("1.20.1+cpu", (1, 20, 1)), ("1.32.0.dev20260101", (1, 32, 0)), ("unknown", ())],
)
def test_versions_are_compared_by_their_numbers(text, numbers):
    assert parse_version(text) == numbers
