"""Weights in and out of sessions: files, mappings, bundles, and what does not fit."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeopt_runtime import BundleContents, StateError, StorageError, TrainingSession, WeightsError
from edgeopt_runtime.transfer import Tensor, matched, read_safetensors, tensors_of
from edgeopt_runtime.weight_sources import weights_of

TRAINABLE = {"weight", "bias", "input_mean"}
WEIGHTS = TRAINABLE | {"scale"}


@pytest.fixture
def aliased(contents) -> BundleContents:
    return replace(contents, manifest=replace(contents.manifest, aliases={"output.weight": "weight"}))


@pytest.fixture
def trained(aliased, make_batches) -> TrainingSession:
    session = TrainingSession(aliased)
    for batch in make_batches(4, 5):
        session.step(batch)
    return session


def all_weights(session):
    return {**session.parameters(), **session.buffers()}


def equal(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def test_another_library_reads_what_is_saved(trained, tmp_path):
    trained.save_weights(tmp_path / "all.safetensors")
    found = safetensors.numpy.load_file(tmp_path / "all.safetensors")
    assert found.keys() == WEIGHTS
    assert all(np.array_equal(found[name], all_weights(trained)[name]) for name in found)
    with safetensors.safe_open(tmp_path / "all.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt", "output.weight": "weight"}


def test_what_training_changes_is_enough_where_the_rest_is(trained, aliased, tmp_path, make_batches):
    trained.save_weights(tmp_path / "new.safetensors", "trainable")
    assert safetensors.numpy.load_file(tmp_path / "new.safetensors").keys() == TRAINABLE
    fresh = TrainingSession(aliased)
    report = fresh.load_weights(tmp_path / "new.safetensors", "trainable")
    assert report.complete
    assert set(report.loaded) == TRAINABLE
    assert equal(all_weights(fresh), all_weights(trained))
    (batch,) = make_batches(6)
    assert fresh.evaluate(batch) == trained.evaluate(batch)
    with pytest.raises(WeightsError, match=r"missing: `scale`\. "):
        fresh.load_weights(tmp_path / "new.safetensors")


@pytest.mark.parametrize(
    "kind", ["file", "folder", "packed", "bytes", "contents", "session", "dict", "wrapped", "torch"]
)
def test_weights_come_from_whatever_holds_them(trained, aliased, tmp_path, kind):
    trained.save_weights(tmp_path / "all.safetensors")
    trained.save(tmp_path / "folder")
    trained.save(tmp_path / "packed.edgeopt")
    by_name = all_weights(trained)
    source = {
        "file": str(tmp_path / "all.safetensors"),
        "folder": tmp_path / "folder",
        "packed": tmp_path / "packed.edgeopt",
        "bytes": (tmp_path / "packed.edgeopt").read_bytes(),
        "contents": replace(aliased, state=trained.state()),
        "session": trained,
        "dict": by_name,
        "wrapped": {f"module._orig_mod.{name}": array for name, array in by_name.items() if name != "weight"},
        "torch": {name: torch.nn.Parameter(torch.from_numpy(array)) for name, array in by_name.items()},
    }[kind]
    fresh = TrainingSession(aliased)
    assert fresh.load_weights(source).complete
    assert equal(all_weights(fresh), by_name)
    # The rest is as it was.
    assert fresh.state()["step"] == 0


def test_all_that_differs_is_listed_at_once(trained):
    given = all_weights(trained)
    given |= {"bias": np.zeros(3, np.float32), "scale": np.array([0.1, 1.0]), "head": np.zeros(1)}
    del given["input_mean"]
    before = trained.state()
    with pytest.raises(WeightsError) as caught:
        trained.load_weights(given)
    report = caught.value.report
    assert (report.missing, report.unexpected) == (("input_mean",), ("head",))
    assert report.shapes == {"bias": ((3,), (2,))}
    assert report.dtypes == {"scale": ("float64", "float32")}
    assert caught.value.code == "E152"
    for words in (
        "missing: `input_mean`",
        "unexpected: `head`",
        "`bias` [3] in place of [2]",
        "`scale` float64 in place",
    ):
        assert words in str(caught.value)
    assert equal(trained.state(), before)
    given["weight"] = given["output.weight"] = given["weight"] + 1
    report = trained.load_weights(given, strict=False)
    assert report.loaded == ("weight",)
    assert equal(trained.state(), {**before, "weight": before["weight"] + 1})


def test_one_tensor_takes_one_value(trained):
    with pytest.raises(StateError, match=r"`output\.weight` and `weight` are one tensor"):
        trained.load_weights({**all_weights(trained), "output.weight": np.zeros((3, 2), np.float32)})


def one(dtype, value):
    tensor = tensors_of({"w": value})
    return matched({"w": Tensor(dtype, tensor["w"].shape)}, {}, tensor, needed={"w"}, strict=False)


@pytest.mark.parametrize("given_dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("own", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("value", [1.5, -0.0, 1 + 2**-9, 1 + 2**-20, 1 + 2**-40, 2.0**-20, 2.0**100, 2.0**-140, np.inf])
def test_types_are_converted_where_values_survive(given_dtype, own, value):
    # torch is the judge of every pair of types.
    tensor = torch.tensor([value, 2.0], dtype=torch.float64).to(getattr(torch, given_dtype))
    there = tensor.to(getattr(torch, own))
    arrays, report = one(own, tensor)
    if torch.equal(there.double(), tensor.double()):
        expected = there.view(torch.int16).numpy().view(np.uint16) if own == "bfloat16" else there.numpy()
        assert arrays["w"].dtype == expected.dtype
        np.testing.assert_array_equal(arrays["w"], expected)
    else:
        assert report.dtypes == {"w": (given_dtype, own)}


def test_bfloat16_comes_as_arrays_and_as_bits():
    array = np.array([1.5, -3], ml_dtypes.bfloat16)
    np.testing.assert_array_equal(one("float32", array)[0]["w"], [1.5, -3])
    np.testing.assert_array_equal(one("bfloat16", array.view(np.uint16))[0]["w"], array.view(np.uint16))


def test_a_file_with_types_of_others_is_read_as_far_as_it_goes(session, tmp_path):
    weights = {"weight": torch.ones(3, 2, dtype=torch.bfloat16), "bias": torch.ones(2).to(torch.float8_e4m3fn)}
    safetensors.torch.save_file(weights, tmp_path / "some.safetensors", {"format": "pt"})
    report = session.load_weights(tmp_path / "some.safetensors", strict=False)
    assert report.loaded == ("weight",)
    assert report.dtypes == {"bias": ("F8_E4M3", "float32")}
    assert (session.parameters()["weight"] == 1).all()


@pytest.mark.parametrize("read", ["load_weights", "load_parameters"])
def test_names_may_have_what_peft_puts_into_them(session, read):
    """`base_model.model.` in front of each, and `base_layer` in those that an adapter stands beside."""
    weights = {
        "base_model.model.weight": torch.full((3, 2), 2.0),
        "module.base_model.model.bias.base_layer": torch.ones(2, dtype=torch.bfloat16),
    }
    given = {**session.parameters(), **session.buffers(), "weight": None, "bias": None, **weights}
    getattr(session, read)({name: value for name, value in given.items() if value is not None})
    assert (session.parameters()["weight"] == 2).all()
    assert (session.parameters()["bias"] == 1).all()


def test_what_holds_no_weights_is_refused_in_words(session, tmp_path):
    torch.save({"weight": torch.ones(1)}, tmp_path / "model.pt")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(StateError, match=r"neither a bundle nor a safetensors file.*`torch.load` returns"):
        session.load_weights(tmp_path / "model.pt")
    with pytest.raises(StateError, match="neither a bundle nor"):
        session.load_weights(tmp_path / "text")
    with pytest.raises(StateError, match="a module of PyTorch; got int"):
        session.load_weights(5)
    with pytest.raises(StateError, match=r"`weight` cannot be read as an array: .*no data"):
        session.load_weights({"weight": torch.ones(3, 2, device="meta")})
    with pytest.raises(StateError, match="`which` must be"):
        session.load_weights({}, "adapters")
    with pytest.raises(StateError, match="`which` must be"):
        session.save_weights(tmp_path / "x.safetensors", "adapters")


def test_a_file_that_cannot_be_written_stays(session, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError):
        session.save_weights(tmp_path / "folder")
    with pytest.raises(StorageError):
        session.save_weights(tmp_path / "none" / "x.safetensors")
    assert sorted(os.listdir(tmp_path)) == ["folder"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 400), byte=st.integers(0, 255), cut=st.integers(0, 60))
def test_damaged_files_are_refused_or_read(session, tmp_path, place, byte, cut):
    path = tmp_path / "damaged.safetensors"
    session.save_weights(path)
    content = bytearray(path.read_bytes())
    content[place % len(content)] = byte
    path.write_bytes(content[: len(content) - cut])
    try:
        tensors = weights_of(path)
    except StateError:
        return
    assert all(tensor.array is None or tensor.array.shape == tensor.shape for tensor in tensors.values())


@pytest.mark.parametrize("shape", [[-1, -6], [2**62, 4, 0], [7], [3, 2, 2]])
def test_shapes_must_fit_the_bytes(tmp_path, shape):
    header = json.dumps({"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, 24]}}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(24))
    with pytest.raises(StateError, match="`w` another number of bytes"):
        read_safetensors(path)
