from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edgeopt_runtime import BatchError
from edgeopt_runtime.batch import BatchReader, each_batch
from edgeopt_runtime.manifest import InputSpec

IMAGES = InputSpec("images", "model", "float32", ("batch", 2, "side"))
MASK = InputSpec("mask", "model", "bool", ("batch", "side"))
LABELS = InputSpec("labels", "loss", "int64", ("batch",))


@pytest.fixture
def read():
    return BatchReader([IMAGES, MASK, LABELS], {"images", "mask", "labels", "weights"})


@pytest.fixture
def batch():
    return {
        "images": np.ones((3, 2, 5), np.float32),
        "mask": np.ones((3, 5), np.bool_),
        "labels": np.arange(3),
    }


def one(dtype, *shape):
    return BatchReader([InputSpec("x", "model", dtype, shape)], {"x"})


def test_fitting_arrays_are_passed_on_without_a_copy(read, batch):
    for given_batch in (batch, tuple(batch.values()), list(batch.values())):
        arrays = read(given_batch)
        assert list(arrays) == ["images", "mask", "labels"]
        assert all(arrays[name] is batch[name] for name in batch)


def test_the_only_input_may_come_alone():
    array = np.zeros(4, np.float32)
    assert one("float32", "n")(array)["x"] is array
    assert one("float32")(2.5)["x"] == np.float32(2.5)


def test_known_inputs_of_other_graphs_are_ignored(read, batch):
    assert read({**batch, "weights": None}).keys() == batch.keys()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: {k: v for k, v in b.items() if k != "mask"}, r"lacks the input `mask`.*got images, labels"),
        (lambda b: {**b, "pixels": 1}, r"no input `pixels`. Give 3 arrays \(images, mask, labels\)"),
        (lambda b: tuple(b.values())[:2], r"must hold 3 arrays \(images, mask, labels\), but it holds 2"),
        (lambda b: 5, "must be a mapping by name, or a tuple or list of 3 arrays.*got int"),
        (
            lambda b: {**b, "images": b["images"].astype(np.float64)},
            r"`images` must be float32, but is float64.*astype",
        ),
        (lambda b: {**b, "labels": b["labels"].astype(np.float32)}, "`labels` must be int64, but is float32"),
        (lambda b: {**b, "labels": b["labels"].astype(np.uint64)}, "`labels` must be int64, but is uint64"),
        (lambda b: {**b, "mask": b["mask"].astype(np.uint8)}, "`mask` must be bool, but is uint8"),
        (lambda b: {**b, "images": b["images"][0]}, r"must have shape \(batch, 2, side\), but has 2 axes: \(2, 5\)"),
        (lambda b: {**b, "images": np.ones((3, 4, 5), np.float32)}, r"has \(3, 4, 5\): axis 1 must be 2"),
        (
            lambda b: {**b, "labels": np.arange(4)},
            r"disagree about `batch`: it is 3 in `images`, but 4 in `labels` \(axis 0 of \(4,\)\)",
        ),
        (lambda b: {**b, "mask": np.ones((3, 6), np.bool_)}, "disagree about `side`: it is 5 in `images`, but 6"),
        (lambda b: {**b, "labels": ["a", "b", "c"]}, "`labels` must be int64, but is <U1"),
        (lambda b: {**b, "labels": [[1], [2, 3], []]}, "`labels` cannot be read as an array"),
        (lambda b: {**b, "labels": None}, "`labels` must be int64, but is object"),
        (lambda b: {**b, "labels": [0.5, 1, 2]}, "`labels` must be int64, but is float64"),
        (lambda b: {**b, "labels": [2**63, 0, 0]}, "`labels` must be int64, but is float64"),
        (lambda b: {**b, "labels": [True, False, True]}, "`labels` must be int64, but is bool"),
        (lambda b: {**b, "images": torch.ones(3, 2, 5, requires_grad=True)}, "detached from its gradient"),
    ],
)
def test_what_does_not_fit_is_named(read, batch, change, words):
    with pytest.raises(BatchError, match=words):
        read(change(batch))


@pytest.mark.parametrize(
    ("actual", "wanted"),
    [
        ("int32", "int64"),
        ("int8", "int64"),
        ("uint8", "int64"),
        ("uint8", "int32"),
        ("float16", "float32"),
        ("float32", "float64"),
        (">f4", "float32"),
        (">i8", "int64"),
    ],
)
def test_arrays_may_become_wider(actual, wanted):
    array = one(wanted, "n")(np.array([1, 2, 3], actual))["x"]
    assert array.dtype == np.dtype(wanted)
    np.testing.assert_array_equal(array, [1, 2, 3])


@pytest.mark.parametrize(
    ("actual", "wanted"),
    [
        ("int64", "int32"),
        ("float64", "float32"),
        ("float32", "float16"),
        ("uint8", "float32"),
        ("int32", "float64"),
        ("bool", "uint8"),
        ("int8", "uint8"),
    ],
)
def test_arrays_may_not_become_narrower_or_something_else(actual, wanted):
    with pytest.raises(BatchError, match=f"must be {wanted}, but is {actual}"):
        one(wanted, "n")(np.zeros(3, actual))


def test_python_numbers_become_what_is_needed():
    assert one("float32", "n", 2)({"x": [[1, 2], [3, 4.5]]})["x"].dtype == np.float32
    assert one("int8", "n")({"x": [-128, 127]})["x"].dtype == np.int8
    assert one("bool", "n")({"x": (True, False)})["x"].dtype == np.bool_
    assert one("int64", "n")({"x": []})["x"].shape == (0,)
    with pytest.raises(BatchError, match="must be int8, but is int64"):
        one("int8", "n")({"x": [128]})


def test_tensors_of_torch_share_their_memory():
    tensor = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    array = one("float32", "n", 3)(tensor)["x"]
    tensor[0, 0] = 42
    assert array[0, 0] == 42


def test_dlpack_is_enough():
    class OnlyDlpack:
        def __init__(self, tensor):
            self._tensor = tensor

        def __dlpack__(self, **options):
            return self._tensor.__dlpack__(**options)

        def __dlpack_device__(self):
            return self._tensor.__dlpack_device__()

    array = one("float32", "n")(OnlyDlpack(torch.arange(3, dtype=torch.float32)))["x"]
    np.testing.assert_array_equal(array, [0, 1, 2])


def test_bfloat16_travels_as_bits():
    values = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    read = one("bfloat16", "n")
    np.testing.assert_array_equal(read(values)["x"], values.view(np.uint16))
    bits = values.view(np.uint16)
    assert read(bits)["x"] is bits
    with pytest.raises(BatchError, match="must be bfloat16, but is float32"):
        read(values.astype(np.float32))


@given(
    array=hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6)),
    step=st.sampled_from([1, 2, -1]),
    turned=st.booleans(),
)
def test_any_memory_layout_is_read(array, step, turned):
    view = array[::step, ::-1]
    view = view.T if turned else view
    result = one("float32", "a", "b")(view)["x"]
    assert result.flags.c_contiguous
    np.testing.assert_array_equal(result, view)


def test_a_read_only_batch_trains(session, make_batches):
    (batch,) = make_batches(4)
    for array in batch.values():
        array.flags.writeable = False
    assert session.step(batch)["loss"] > 0


def test_scalars_keep_their_shape():
    assert one("float32")(np.asarray(3, np.float16))["x"].shape == ()


X, Y = np.zeros(2), np.zeros(2)


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ({"x": X}, 1),
        ((X, Y), 1),
        ([X, Y], 1),
        ([[1.0], Y], 1),
        ([{"x": X}, {"x": Y}], 2),
        ([(X, Y), (X, Y), (X, Y)], 3),
        (((X, Y),), 1),
        (((X, Y) for _ in range(4)), 4),
        ([], 0),
    ],
)
def test_one_batch_is_told_from_several(value, count):
    assert len(list(each_batch(value))) == count
