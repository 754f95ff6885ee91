"""The smallest bundles that once ended in something else than a typed error, or took far too long."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from edgeopt_runtime import (
    BundleContents,
    BundleError,
    ForeignBundleError,
    GraphError,
    ManifestError,
    MinimizeError,
    TamperedBundleError,
    TrainingSession,
    onnx_wire,
    pack_bundle,
    read_bundle,
    stored_zip,
    write_bundle,
)
from edgeopt_runtime.manifest import GraphInput, GraphOutput, Hyperparameter, Manifest, Signature, TensorSpec
from edgeopt_runtime.parsing import parse_manifest


def with_default(manifest: Manifest, dtype: str, default: float) -> Manifest:
    return replace(manifest, hyperparameters=(*manifest.hyperparameters, Hyperparameter("new", dtype, default)))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        *(("uint8", 300), ("uint8", -1), ("int8", 128), ("int8", -129), ("int16", 2**15), ("int32", 2**31)),
        *(("float32", 1e308), ("float32", -3.5e38), ("float16", 65520.0), ("float16", 10**300), ("float64", 10**309)),
    ],
)
def test_defaults_beyond_their_type(manifest, dtype, value):
    with pytest.raises(ManifestError, match=r"default` must be .*(finite number|whole number)"):
        parse_manifest(with_default(manifest, dtype, value).to_json())


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("uint8", 255), ("int8", -128), ("float16", 65504.0), ("float32", 3.4028234663852886e38), ("float64", 10**308)],
)
def test_defaults_at_the_end_of_their_type(contents, dtype, value):
    session = TrainingSession(replace(contents, manifest=with_default(contents.manifest, dtype, value)))
    assert session.hyperparameters["new"] == float(value)


@pytest.mark.parametrize("shape", [(1,) * 33, (1,) * 65, (0, 2**48, 2**48), (2**48, 2**48), (2**40,) * 30])
@pytest.mark.parametrize("kind", ["tensors", "accumulators"])
def test_shapes_that_no_array_has(manifest, kind, shape):
    spec = TensorSpec("new", "accumulator" if kind == "accumulators" else "buffer", "float32", shape, slot="curvature")
    changed = replace(manifest, **{kind: (*getattr(manifest, kind), spec)})
    with pytest.raises(ManifestError, match="must be the shape of a tensor that fits into memory, of at most 32 axes"):
        parse_manifest(changed.to_json())


def test_batches_of_too_many_axes(manifest):
    wide = replace(manifest.inputs[0], shape=("batch",) * 33)
    with pytest.raises(ManifestError, match="a shape of at most 32 axes"):
        parse_manifest(replace(manifest, inputs=(wide, manifest.inputs[1])).to_json())


@pytest.mark.parametrize("depth", [10, 200, 900, 3000, 100_000])
def test_values_nested_deeper_than_the_stack(manifest, depth):
    text = manifest.to_json().replace('"by hand"', "[" * depth + "]" * depth)
    with pytest.raises(BundleError) as refused:
        parse_manifest(text)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("text", ['"' + "x" * 10**6 + '"', "9" * 999, "[" + "1," * 10**5 + "1]"], ids=len)
def test_messages_stay_short(manifest, text):
    with pytest.raises(BundleError) as refused:
        parse_manifest(manifest.to_json().replace('"opset": 20', f'"opset": {text}'))
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("text", ["9" * 5000, "-" + "9" * 1001, "1e400", "Infinity", "-NaN", "0x10", "01"])
def test_numbers_that_json_does_not_have(manifest, text):
    with pytest.raises(BundleError):
        parse_manifest(manifest.to_json().replace('"opset": 20', f'"opset": {text}'))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig", "latin-1"])
def test_manifests_are_utf_8(manifest, encoding):
    text = manifest.to_json().replace("by hand", "by h\xe4nd").encode(encoding)
    with pytest.raises(ForeignBundleError, match="not JSON"):
        parse_manifest(text)


def many(count: int) -> Manifest:
    """A manifest with as many parameters, accumulators, vectors and outputs."""
    names = [f"layer.{index}.weight" for index in range(count)]
    sums = [f"sum.{name}" for name in names]
    return Manifest(
        opset=20,
        ir_version=9,
        minimum_onnxruntime="1.17.0",
        tensors=tuple(TensorSpec(name, "parameter", "float32", (3, 2), trainable=True) for name in names),
        accumulators=tuple(
            TensorSpec(total, "accumulator", "float32", (3, 2), parameter=name)
            for name, total in zip(names, sums, strict=True)
        ),
        hyperparameters=(),
        inputs=(),
        outputs=(),
        signatures={
            "hessian_vector": Signature(
                "hessian_vector.onnx",
                (
                    *(GraphInput(f"v.{name}", "vector", name) for name in names),
                    *(GraphInput(total, "state") for total in sums),
                ),
                tuple(GraphOutput(f"next.{total}", "state", tensor=total) for total in sums),
            )
        },
    )


def test_checks_take_time_that_grows_with_the_manifest():
    times = []
    for count in (2000, 16000):
        text = many(count).to_json()
        times.append(min(_seconds(text) for _ in range(2)))
    # Eight times as many; what grows with their square takes 64 times as long.
    assert times[1] < 24 * times[0]


def _seconds(text: str) -> float:
    began = time.perf_counter()
    parse_manifest(text)
    return time.perf_counter() - began


@pytest.mark.parametrize(
    "text",
    [b"[" + b"[]," * 7_000_000 + b"0]", b"[" + b"{}," * 7_000_000 + b"0]", b"[" + b"0," * 15_000_000 + b"0]"],
    ids=["lists", "objects", "numbers"],
)
def test_a_manifest_of_many_values_is_refused_before_it_is_parsed(text):
    tracemalloc.start()
    try:
        with pytest.raises(ForeignBundleError, match="more than any bundle needs"):
            parse_manifest(text)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_a_manifest_that_no_runtime_would_read_is_not_written(contents, monkeypatch):
    monkeypatch.setattr("edgeopt_runtime.archive.LARGEST_MANIFEST", 5000)
    with pytest.raises(ManifestError, match="no runtime reads more"):
        pack_bundle(contents.manifest, contents.graphs, contents.state)


def nested(depth: int) -> bytes:
    """A model of graphs within graphs."""
    graph = helper.make_graph([], "inner", [], [])
    content = graph.SerializeToString()
    for _ in range(depth):
        attribute = _field(6, content) + _field(1, b"location")
        content = _field(1, _field(5, attribute) + _field(4, b"If"))
    return _field(7, content)


def _field(number: int, content: bytes) -> bytes:
    return onnx_wire._key(number, onnx_wire.LENGTH) + onnx_wire._varint(len(content)) + content


def test_subgraphs_nested_deeper_than_the_stack(contents, make_batches):
    graphs = {**contents.graphs, "step.onnx": nested(3000)}
    session = TrainingSession(replace(contents, graphs=graphs))
    with pytest.raises(GraphError, match="parts within parts more than 100 deep"):
        session.step(make_batches(2)[0])
    assert onnx_wire.operators_of(nested(30)) == {"If"}


def test_a_key_of_more_than_32_bits_hides_no_external_data():
    # Protobuf drops the upper bits of this key, and then it is that of `external_data`.
    tensor = helper.make_tensor("t", TensorProto.FLOAT, [1], [0.0]).SerializeToString()
    hidden = (
        onnx_wire._varint(1 << 35 | onnx_wire.TENSOR_EXTERNAL_DATA << 3 | onnx_wire.LENGTH) + b"\x0a\x0a\x08location"
    )
    model = _field(7, _field(5, tensor + hidden))
    assert onnx_wire.has_external_data(model)


def test_operators_are_listed_wherever_they_are():
    body = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "body", [], [])
    nodes = [helper.make_node("If", ["c"], ["z"], then_branch=body, else_branch=body)]
    function = helper.make_function("own", "F", ["a"], ["b"], [helper.make_node("Exp", ["a"], ["b"])], [])
    model = helper.make_model(
        helper.make_graph([*nodes, helper.make_node("F", ["a"], ["b"], domain="own")], "g", [], [])
    )
    model.functions.append(function)
    assert onnx_wire.operators_of(model.SerializeToString()) == {"If", "Relu", "own::F", "Exp"}


def test_a_directory_of_gigabytes_is_not_read():
    class Huge:
        size = 10**12

        def read(self, start: int, length: int) -> bytes:
            assert length < 1 << 24, "that much is not read"
            if start == 0:
                return b"PK\3\4"
            tail = stored_zip.END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, 7, 7, 10**12 - 98, 0)
            tail += stored_zip.LOCATOR64.pack(b"PK\6\7", 0, 10**12 - 98, 1)
            tail += stored_zip.END.pack(b"PK\5\6", 0, 0, 7, 7, 1, 2, 0)
            return (bytes(1 << 20) + tail)[(1 << 20) + 98 - (self.size - start) :][:length]

    with pytest.raises(ForeignBundleError, match="a bundle holds a handful"):
        stored_zip.index(Huge())


@pytest.mark.parametrize(("offset", "form"), [(6, "flags"), (14, "crc"), (18, "packed"), (22, "size")])
def test_the_two_headers_of_an_entry_must_agree(packed, offset, form):
    damaged = bytearray(packed)
    damaged[offset] ^= 1
    with pytest.raises(TamperedBundleError, match="differs from the archive's directory"):
        read_bundle(bytes(damaged))


def rewritten(contents: BundleContents, folder: Any, old: str, new: str) -> None:
    write_bundle(folder, contents.manifest, contents.graphs, contents.state)
    text = (folder / "manifest.json").read_text()
    assert text.count(old) == 1
    (folder / "manifest.json").write_text(text.replace(old, new))


def test_a_rate_changed_in_a_folders_manifest_is_noticed(contents, tmp_path):
    rewritten(contents, tmp_path / "linear", '"default": 0.1', '"default": 0.2')
    with pytest.raises(TamperedBundleError, match=r"manifest\.json was changed .* use `set_hyper`"):
        read_bundle(tmp_path / "linear")


def test_any_changed_byte_of_a_folders_manifest_is_noticed(contents, tmp_path):
    folder = tmp_path / "linear"
    write_bundle(folder, contents.manifest, contents.graphs, contents.state)
    text = (folder / "manifest.json").read_bytes()
    rng = np.random.default_rng(0)
    for position in rng.choice(len(text) - 3, 200, replace=False):
        (folder / "manifest.json").write_bytes(text[:position] + bytes([text[position] ^ 1]) + text[position + 1 :])
        with pytest.raises(BundleError):
            read_bundle(folder)


def test_the_checksum_is_what_the_format_says(contents, tmp_path):
    folder = tmp_path / "linear"
    write_bundle(folder, contents.manifest, contents.graphs, contents.state)
    text = (folder / "manifest.json").read_bytes()
    front, _, _ = text.rpartition(b'"checksum"')
    assert json.loads(text)["checksum"] == hashlib.sha256(front).hexdigest()
    assert list(json.loads(text))[-1] == "checksum"
    # One that an editor moved away from the end.
    document = json.loads(text)
    (folder / "manifest.json").write_text(json.dumps(document, sort_keys=True))
    with pytest.raises(TamperedBundleError, match="checksum"):
        read_bundle(folder)


def test_bundles_of_old_have_no_checksum(contents, tmp_path):
    folder = tmp_path / "linear"
    write_bundle(folder, contents.manifest, contents.graphs, contents.state)
    document = json.loads((folder / "manifest.json").read_text())
    del document["checksum"]
    (folder / "manifest.json").write_text(json.dumps(document))
    assert read_bundle(folder).graphs == contents.graphs


def test_minimize_says_what_a_bundle_lacks(contents, make_batches):
    weightless = tuple(spec for spec in contents.manifest.accumulators if spec.parameter is not None)
    session = TrainingSession(contents)
    session._engine.program("accumulate")
    session._engine.manifest = replace(contents.manifest, accumulators=weightless)
    with pytest.raises(MinimizeError, match="gives no loss, or no weight"):
        session.minimize(make_batches(4))


LITTLE_MEMORY = """
import resource, sys
from edgeopt_runtime import BundleError, TrainingSession, read_bundle
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (64 << 20), resource.RLIM_INFINITY))
try:
    TrainingSession(read_bundle(sys.argv[1]))
except BundleError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space are Linux's")
def test_a_bundle_larger_than_the_memory_left(contents, tmp_path):
    specs = (*contents.manifest.tensors, TensorSpec("large", "buffer", "float32", (25_000_000,)))
    state = {**contents.state, "large": np.zeros(25_000_000, np.float32)}
    path = tmp_path / "large.edgeopt"
    write_bundle(path, replace(contents.manifest, tensors=specs), contents.graphs, state)
    done = subprocess.run([sys.executable, "-c", LITTLE_MEMORY, path], capture_output=True, text=True, check=False)
    assert "too little memory" in done.stdout, done.stderr


def test_representations_are_short(contents):
    session = TrainingSession(contents)
    manifest = replace(contents.manifest, tensors=many(2000).tensors)
    for thing in (contents, contents.manifest, session, manifest, session.manifest):
        text = repr(thing)
        assert text.startswith(type(thing).__name__ + "(")
        assert len(text) < 500
    assert "parameters: 3, trainable: 2; state: 9 tensors of 108 bytes" in repr(session)
    assert "`x float32 ['batch', 3]`" in repr(contents)
    assert "accumulate, apply, evaluate, predict, step" in repr(contents.manifest)
