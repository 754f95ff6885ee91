"""Constants: a file of their own, one array for all graphs or initializers of each, and the same numbers either way."""

from __future__ import annotations

import errno
import io
import json
import os
import zipfile
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeopt_runtime import (
    BundleContents,
    BundleError,
    ManifestError,
    StateError,
    StorageError,
    TamperedBundleError,
    TrainingSession,
    TruncatedBundleError,
    pack_bundle,
    read_bundle,
    write_bundle,
)
from edgeopt_runtime.constants import bake_constants
from edgeopt_runtime.onnx_wire import External, bake
from edgeopt_runtime.parsing import parse_manifest

PLACES = ("auto", "inputs", "initializers")


def with_constants(contents: BundleContents, place: str) -> BundleContents:
    """The bundle with its frozen parameter as a constant."""
    tensors = tuple(
        replace(spec, constant=place) if spec.name == "scale" else spec for spec in contents.manifest.tensors
    )
    return replace(contents, manifest=replace(contents.manifest, tensors=tensors))


@pytest.fixture(scope="module", params=["initializer", "input"])
def constant(contents, request):
    return with_constants(contents, request.param)


@pytest.fixture(scope="module")
def fixed(constant):
    return pack_bundle(constant.manifest, constant.graphs, constant.state)


@pytest.mark.parametrize("places", PLACES)
def test_training_is_the_same_to_the_last_bit(packed, fixed, make_batches, places):
    usual, other = TrainingSession.load(packed), TrainingSession.load(fixed, constants=places)
    for batch in make_batches(4, 3, 5):
        assert usual.step(batch) == other.step(batch)
        assert usual.accumulate(batch) == other.accumulate(batch)
    assert usual.apply() == other.apply()
    (batch,) = make_batches(6)
    assert usual.evaluate(batch) == other.evaluate(batch)
    np.testing.assert_array_equal(usual.predict(batch), other.predict(batch))
    for name, array in usual.state().items():
        np.testing.assert_array_equal(array, other.state()[name])


def test_they_have_a_file_of_their_own(fixed, contents):
    files = zipfile.ZipFile(io.BytesIO(fixed))
    constants = safetensors.numpy.load(files.read("constants.safetensors"))
    assert list(constants) == ["scale"]
    np.testing.assert_array_equal(constants["scale"], contents.state["scale"])
    assert "scale" not in safetensors.numpy.load(files.read("state.safetensors"))


def test_a_bundle_without_them_has_no_such_file(packed):
    assert "constants.safetensors" not in zipfile.ZipFile(io.BytesIO(packed)).namelist()


def test_one_array_serves_all_graphs_and_is_that_of_the_file(fixed):
    contents = read_bundle(fixed)
    session = TrainingSession(contents, constants="inputs")
    assert session._engine.state.current("scale") is contents.state["scale"] or np.shares_memory(
        session._engine.state.current("scale"), contents.state["scale"]
    )


def test_a_checkpoint_is_whole_and_its_constants_are_not_written_again(fixed, make_batches, tmp_path):
    session = TrainingSession.load(fixed)
    session.save(tmp_path / "bundle")
    file = tmp_path / "bundle" / "constants.safetensors"
    before = file.stat()
    session.step(make_batches(4)[0])
    session.save(tmp_path / "bundle")
    after = file.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    again = TrainingSession.load(tmp_path / "bundle")
    (batch,) = make_batches(5)
    assert again.step(batch) == session.step(batch)


@pytest.mark.parametrize("places", PLACES)
def test_they_can_be_replaced_in_a_session(fixed, make_batches, tmp_path, places):
    session = TrainingSession.load(fixed, constants=places)
    (batch,) = make_batches(4)
    first = np.asarray(session.predict(batch))
    scale = session.parameters()["scale"]
    session.load_parameters({"scale": 2 * scale})
    np.testing.assert_array_equal(session.predict(batch), 2 * first)
    session.save(tmp_path / "other.edgeopt")
    other = TrainingSession.load(tmp_path / "other.edgeopt", constants=places)
    np.testing.assert_array_equal(other.parameters()["scale"], 2 * scale)
    assert session.step(batch) == other.step(batch)
    # The bundle that the session was made of is as it was.
    np.testing.assert_array_equal(TrainingSession.load(fixed).predict(batch), first)


def test_another_word_for_their_place_is_refused(fixed):
    with pytest.raises(StateError, match='"inputs"'):
        TrainingSession.load(fixed, constants="somewhere")  # type: ignore[arg-type]  # which is the point


def test_inference_is_exported_with_them(fixed, make_batches, tmp_path):
    session = TrainingSession.load(fixed)
    session.export_inference(tmp_path / "model.onnx")
    (batch,) = make_batches(4)
    found = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"x": batch["x"]})[0]
    np.testing.assert_array_equal(found, session.predict(batch))


@pytest.mark.parametrize("large", [False, True])
def test_large_initializers_share_the_memory_of_the_session(large):
    onnx = pytest.importorskip("onnx")
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 20]> g (float[n, 64] x, float[64, 64] w) => (float[n, 64] y)'
        "{ y = MatMul(x, w) }"
    )
    w = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    value = External(w) if large else w
    graph = b"".join(bake(model.SerializeToString(), {"w": ("float32", value)}))
    assert (len(graph) < w.nbytes) == large
    settings = onnxruntime.SessionOptions()
    if large:
        ort = onnxruntime.OrtValue.ortvalue_from_numpy(w)
        settings.add_external_initializers(["w"], [ort])
        settings.add_initializer("w", ort)
    session = onnxruntime.InferenceSession(graph, settings)
    x = np.eye(64, dtype=np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], w)
    assert [port.name for port in session.get_inputs()] == ["x"]


def test_a_graph_without_the_input_is_not_given_it(constant):
    session = TrainingSession(constant)
    signature = constant.manifest.signatures["apply"]
    baked = bake_constants(
        constant.graphs["apply.onnx"], signature, session._engine.state, "initializers", cpu_only=True
    )
    assert not baked.names


def repacked(packed: bytes, change) -> bytes:
    """The archive with other contents: the dict that `change` edits."""
    files = zipfile.ZipFile(io.BytesIO(packed))
    contents = {name: files.read(name) for name in files.namelist()}
    change(contents)
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return target.getvalue()


def without(contents):
    del contents["constants.safetensors"]


def changed(contents):
    content = bytearray(contents["constants.safetensors"])
    content[-1] ^= 1
    contents["constants.safetensors"] = bytes(content)


def cut(contents):
    contents["constants.safetensors"] = contents["constants.safetensors"][:-1]


@pytest.mark.parametrize(
    ("change", "error"), [(without, TruncatedBundleError), (changed, TamperedBundleError), (cut, TruncatedBundleError)]
)
def test_a_damaged_file_is_refused(fixed, change, error):
    with pytest.raises(error, match="constants"):
        read_bundle(repacked(fixed, change))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_changed_byte_is_noticed_or_harmless(fixed, constant, data):
    position, value = data.draw(st.integers(0, len(fixed) - 1)), data.draw(st.integers(0, 255))
    try:
        found = read_bundle(fixed[:position] + bytes([value]) + fixed[position + 1 :])
    except BundleError:
        return
    for name, array in constant.state.items():
        np.testing.assert_array_equal(found.state[name], array)


def edited(constant, change) -> str:
    document = json.loads(constant.manifest.to_json())
    document.pop("checksum")
    change(document)
    return json.dumps(document)


def named(document, name):
    return next(spec for spec in document["tensors"] if spec["name"] == name)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: named(d, "weight").update(constant="input"), "constant"),
        (lambda d: named(d, "input_mean").update(constant="input"), "which is constant"),
        (lambda d: named(d, "step").update(constant="input"), "constant"),
        (lambda d: named(d, "scale").update(constant="elsewhere"), "one of initializer, input, encoded"),
        (lambda d: named(d, "scale").update(constant="encoded"), "does not say how"),
        (lambda d: d.update(encoded=[{"name": "scale", "codes": "input_mean"}]), "not a parameter that says so"),
        (lambda d: d.update(schema_version=1), "schema_version"),
    ],
)
def test_manifests_that_contradict_themselves_are_refused(constant, change, words):
    parse_manifest(edited(constant, lambda document: None))
    with pytest.raises(ManifestError, match=words):
        parse_manifest(edited(constant, change))


class Fault:
    """Every call of the system after so many fails, as on a full disk."""

    def __init__(self, allowed):
        self.allowed, self.calls = allowed, 0

    def on(self, real):
        def call(*args, **settings):
            self.calls += 1
            if self.calls > self.allowed:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*args, **settings)

        return call


def test_a_failure_while_constants_are_replaced_leaves_one_bundle_or_the_other(constant, tmp_path, monkeypatch):
    place = tmp_path / "bundle"
    write_bundle(place, constant.manifest, constant.graphs, constant.state)
    session = TrainingSession.load(place)
    old = session.parameters()["scale"]
    session.load_parameters({"scale": old + 1})
    for fail_at in range(40):
        fault = Fault(fail_at)
        with monkeypatch.context() as patch:
            for name in ("open", "write", "fsync", "replace", "rename"):
                patch.setattr(os, name, fault.on(getattr(os, name)))
            try:
                session.save(place)
            except StorageError:
                saved = False
            else:
                saved = True
        found = TrainingSession.load(place).parameters()["scale"]
        np.testing.assert_array_equal(found, old + 1 if saved else old)
        if saved and fault.calls <= fail_at:
            return
        if saved:
            write_bundle(place, constant.manifest, constant.graphs, constant.state)
    pytest.fail("there was no end")
