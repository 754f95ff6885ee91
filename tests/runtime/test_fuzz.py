"""A bundle with any byte changed, added or lost is refused with a typed error, or loads as if nothing had happened."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from edgeopt_runtime import BundleContents, BundleError, EdgeoptError, TrainingSession, read_bundle, stored_zip
from edgeopt_runtime.archive import _BytesSource
from edgeopt_runtime.parsing import parse_manifest

fuzz = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read_or_refuse(packed: bytes, expected: BundleContents) -> None:
    try:
        contents = read_bundle(packed)
    except BundleError:
        return
    assert replace(contents.manifest, files={}) == expected.manifest
    assert contents.graphs == expected.graphs
    for name, array in expected.state.items():
        np.testing.assert_array_equal(contents.state[name], array)


@fuzz
@given(data=st.data())
def test_one_changed_byte(packed, contents, data):
    position = data.draw(st.integers(0, len(packed) - 1))
    value = data.draw(st.integers(0, 255))
    read_or_refuse(packed[:position] + bytes([value]) + packed[position + 1 :], contents)


@fuzz
@given(data=st.data())
def test_one_changed_byte_of_the_archives_directory(packed, contents, data):
    # The directory is 3 % of the file and holds most of what can confuse a reader.
    start = packed.index(b"PK\1\2")
    damaged = bytearray(packed)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(start, len(packed) - 1))] = data.draw(st.integers(0, 255))
    read_or_refuse(bytes(damaged), contents)


@fuzz
@given(data=st.data())
def test_one_changed_byte_of_a_zip64_directory(packed, contents, data):
    files = {name: [content] for name, content in _files(packed).items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_zip, "LIMIT", 100)
        wide = b"".join(stored_zip.pack(files.items()))
    start = wide.index(b"PK\1\2")
    damaged = bytearray(wide)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(start, len(wide) - 1))] = data.draw(st.integers(0, 255))
    read_or_refuse(bytes(damaged), contents)


@fuzz
@given(data=st.data())
def test_a_cut(packed, contents, data):
    read_or_refuse(packed[: data.draw(st.integers(0, len(packed) - 1))], contents)


@fuzz
@given(data=st.data())
def test_lost_and_added_bytes(packed, contents, data):
    start = data.draw(st.integers(0, len(packed)))
    end = data.draw(st.integers(start, min(start + 40, len(packed))))
    read_or_refuse(packed[:start] + data.draw(st.binary(max_size=40)) + packed[end:], contents)


@fuzz
@given(content=st.binary(max_size=200))
@example(content=b"PK\5\6" + bytes(18))
@example(content=b"PK\3\4" + bytes(100) + b"PK\5\6" + b"\xff" * 18)
def test_any_bytes(content):
    with pytest.raises(BundleError):
        read_bundle(content)


@fuzz
@given(data=st.data())
def test_a_changed_manifest_that_still_has_a_right_checksum(packed, contents, data):
    # Whoever writes a bundle can compute checksums: the manifest alone must not lead the runtime astray either.
    files = _files(packed)
    manifest = bytearray(files["manifest.json"])
    for _ in range(data.draw(st.integers(1, 3))):
        manifest[data.draw(st.integers(0, len(manifest) - 1))] = data.draw(st.integers(0, 127))
    files["manifest.json"] = bytes(manifest)
    _load_or_refuse(files)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@fuzz
@given(data=st.data())
def test_any_value_in_any_field(packed, data):
    document = json.loads(_files(packed)["manifest.json"])
    node = document
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(node[key], (dict, list)) or not node[key] or data.draw(st.booleans()):
            break
        node = node[key]
    node[key] = data.draw(JSON)
    try:
        manifest = parse_manifest(json.dumps(document))
    except BundleError:
        return
    assert parse_manifest(manifest.to_json()) == manifest


@fuzz
@given(data=st.data())
def test_a_changed_state_file_that_has_a_right_checksum(packed, data):
    files = _files(packed)
    state = bytearray(files["state.safetensors"])
    header = int.from_bytes(state[:8], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        state[data.draw(st.integers(0, 8 + header - 1))] = data.draw(st.integers(0, 255))
    files["state.safetensors"] = bytes(state)
    _load_or_refuse(_rehashed(files))


@settings(fuzz, max_examples=100)
@given(data=st.data())
def test_a_changed_graph_that_has_a_right_checksum(packed, make_batches, data):
    # The graph reaches ONNX Runtime's parser and kernels; what they refuse must arrive as a typed error.
    files = _files(packed)
    graph = bytearray(files["predict.onnx"])
    graph[data.draw(st.integers(0, len(graph) - 1))] = data.draw(st.integers(0, 255))
    files["predict.onnx"] = bytes(graph)
    session = TrainingSession.load(b"".join(stored_zip.pack((n, [c]) for n, c in _rehashed(files).items())), threads=1)
    with contextlib.suppress(EdgeoptError):
        session.predict(make_batches(2)[0])


@fuzz
@given(st.dictionaries(st.text(max_size=20), st.binary(max_size=60), max_size=8))
def test_any_files_come_back_from_an_archive(files):
    names = {name: content for name, content in files.items() if not any("\ud800" <= c <= "\udfff" for c in name)}
    packed = b"".join(stored_zip.pack((name, [content[:7], content[7:]]) for name, content in names.items()))
    source = _BytesSource(memoryview(packed))
    entries = stored_zip.index(source)
    assert {name: stored_zip.read(source, entry) for name, entry in entries.items()} == names


def test_the_fuzzed_state_is_what_safetensors_reads(packed, contents):
    assert safetensors.numpy.load(_files(packed)["state.safetensors"]).keys() == contents.state.keys()


def _files(packed: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _rehashed(files: dict[str, bytes]) -> dict[str, bytes]:
    document = json.loads(files["manifest.json"])
    for name in document["files"]:
        document["files"][name] = {
            "bytes": len(files[name]),
            "sha256": hashlib.sha256(files[name]).hexdigest(),
        }
    return {**files, "manifest.json": json.dumps(document).encode()}


def _load_or_refuse(files: dict[str, bytes]) -> None:
    try:
        session = TrainingSession.load(b"".join(stored_zip.pack((name, [content]) for name, content in files.items())))
    except BundleError:
        return
    # Whatever was accepted can be saved and read again.
    assert session.state().keys() == {spec.name for spec in session.manifest.tensors}
