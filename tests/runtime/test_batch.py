from __future__ import annotations

from collections import UserDict, namedtuple
from types import MappingProxyType

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
        (
            lambda b: {"images": b["images"], "masks": b["mask"], "labels": b["labels"]},
            r"lacks the input `mask`. Is it `masks`\? Give 3 arrays \(images, mask, labels\); got images, masks, lab",
        ),
        (lambda b: tuple(b.values())[:2], r"must hold 3 arrays \(images, mask, labels\), but it holds 2"),
        (lambda b: 5, "must be a mapping by name, or a tuple or list of 3 arrays.*got int"),
        (
            lambda b: {**b, "images": b["images"].astype(np.float64) + np.arange(5) / 8e9},
            r"`images` must be float32, but is float64, and holds 1.0000000001.* at \(0, 0, 1\), which float32 has "
            r"not: convert it with `.astype\('float32'\)` if",
        ),
        (lambda b: {**b, "labels": b["labels"].astype(np.float32)}, "`labels` must be int64, but is float32"),
        (
            lambda b: {**b, "labels": np.array([0, 2**63, 0], np.uint64)},
            r"`labels` must be int64, but is uint64, and holds 9223372036854775808 at \(1,\)",
        ),
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
        (
            lambda b: {**b, "images": torch.ones(3, 2, 5, device="meta")},
            r"`images` cannot be read as an array \(Tensor: [^.]*no data[^.]*\)\. Give a numpy array",
        ),
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


NARROWER = [
    ("int64", "int32"),
    ("float64", "float32"),
    ("float32", "float16"),
    ("uint64", "int64"),
    ("int16", "int8"),
    ("int8", "uint8"),
]


@pytest.mark.parametrize(("actual", "wanted"), NARROWER)
def test_what_loses_nothing_becomes_narrower_and_that_is_said_once(actual, wanted):
    said: set[str] = set()
    spec = InputSpec("x", "model", wanted, ("n",))
    given_array = np.array([1, 2, 3], actual)
    with pytest.warns(UserWarning, match=rf"`x` must be {wanted}, but is {actual}.*\.astype\('{wanted}'\)"):
        array = BatchReader([spec], [], said)({"x": given_array})["x"]
    assert array.dtype == np.dtype(wanted)
    np.testing.assert_array_equal(array, given_array)
    # Warnings are errors here.
    BatchReader([spec], [], said)({"x": given_array})


def quietly(wanted, array):
    """What an array becomes; the warning has a test of its own."""
    return BatchReader([InputSpec("x", "model", wanted, ("n",))], [], {"type x"})({"x": array})["x"]


LIMITS = [sign * (2**bits) + more for bits in (7, 8, 15, 31, 63) for sign in (-1, 1) for more in (-1, 0, 1)]


@given(
    pair=st.sampled_from([pair for pair in NARROWER if "float" not in pair[0]]),
    values=st.lists(st.sampled_from(LIMITS) | st.integers(-300, 300), min_size=1, max_size=5),
)
def test_whole_numbers_survive_or_are_refused_with_their_place(pair, values):
    actual, wanted = pair
    values = [value for value in values if np.iinfo(actual).min <= value <= np.iinfo(actual).max] or [0]
    lost = [place for place, value in enumerate(values) if not np.iinfo(wanted).min <= value <= np.iinfo(wanted).max]
    array = np.array(values, actual)
    if lost:
        with pytest.raises(BatchError, match=rf"holds {values[lost[0]]} at \({lost[0]},\)"):
            quietly(wanted, array)
    else:
        assert quietly(wanted, array).tolist() == values


EDGES = [0.0, -0.0, np.inf, -np.inf, 65504.0, 65519.0, 65520.0, 2.0**-24, 2.0**-25, 2.0**-149, 2.0**-150, 3.4028234e38]
EDGES += [3.4028235677973366e38, np.finfo(np.float64).max, 5e-324, 0.1, 1 + 2**-23, 1 + 2**-24, 1 + 2**-10, 1 + 2**-11]


@given(
    pair=st.sampled_from([("float64", "float32"), ("float64", "float16"), ("float32", "float16")]),
    values=st.lists(
        st.sampled_from(EDGES) | st.floats(allow_nan=False) | st.floats(width=16, allow_nan=False),
        min_size=1,
        max_size=5,
    ),
)
def test_floating_point_survives_or_is_refused_with_its_place(pair, values):
    # The other judge is torch, element by element.
    actual, wanted = pair
    with np.errstate(over="ignore"):
        array = np.array(values).astype(actual)
    there = torch.from_numpy(array).to(getattr(torch, wanted))
    lost = (there.double() != torch.from_numpy(array).double()).nonzero()
    if len(lost):
        with pytest.raises(BatchError, match=rf" at \({int(lost[0])},\), which {wanted} has not"):
            quietly(wanted, array)
    else:
        np.testing.assert_array_equal(quietly(wanted, array), there.numpy())
        np.testing.assert_array_equal(np.signbit(quietly(wanted, array)), np.signbit(array))


def test_nan_survives():
    np.testing.assert_array_equal(quietly("float32", np.array([np.nan, 1, -np.inf])), [np.nan, 1, -np.inf])


def test_a_scalar_is_lost_without_a_place():
    with pytest.raises(BatchError, match=r"holds 0\.1, which float32 has not"):
        one("float32")(np.asarray(0.1))


@pytest.mark.parametrize(
    ("actual", "wanted"), [("uint8", "float32"), ("int32", "float64"), ("float32", "int64"), ("bool", "uint8")]
)
def test_arrays_do_not_become_another_kind_of_number(actual, wanted):
    with pytest.raises(BatchError, match=f"must be {wanted}, but is {actual}: convert it"):
        one(wanted, "n")(np.zeros(3, actual))


def test_names_that_no_graph_takes_are_left_alone_and_said_once(read, batch):
    with pytest.warns(UserWarning, match=r"holds `id`, `pixels`, which nothing.*images, mask, labels"):
        assert read({**batch, "pixels": 1, "id": ["a", "b", "c"]}).keys() == batch.keys()
    read({**batch, "id": None})
    with pytest.warns(UserWarning, match=r"holds `length`, which"):
        read({**batch, "id": None, "length": 3})


def test_mappings_need_not_be_dicts(read, batch):
    for kind in (UserDict, MappingProxyType):
        arrays = read(kind(batch))
        assert all(arrays[name] is batch[name] for name in batch)
    # As rows of data sets come: lists of lists.
    for name, array in read(UserDict({name: array.tolist() for name, array in batch.items()})).items():
        np.testing.assert_array_equal(array, batch[name])
        assert array.dtype == batch[name].dtype


def test_what_a_tokenizer_gives_is_a_batch():
    transformers = pytest.importorskip("transformers")
    rows = {"input_ids": [[5, 6, 0], [7, 8, 9]], "attention_mask": [[1, 1, 0], [1, 1, 1]]}
    specs = [InputSpec(name, "model", "int64", ("batch", "time")) for name in rows]
    for tensors in (None, "np", "pt"):
        encoded = transformers.BatchEncoding({**rows, "token_type_ids": [[0] * 3] * 2}, tensor_type=tensors)
        with pytest.warns(UserWarning, match="`token_type_ids`, which"):
            arrays = BatchReader(specs, [])(encoded)
        assert {name: array.tolist() for name, array in arrays.items()} == rows
        assert all(array.dtype == np.int64 for array in arrays.values())


def test_batches_of_a_data_loader_are_in_the_order_of_the_inputs():
    images, mask, labels = torch.rand(5, 2, 3), torch.ones(5, 3, dtype=torch.bool), torch.arange(5)
    data = torch.utils.data.TensorDataset(images, mask, labels)
    read = BatchReader([IMAGES, MASK, LABELS], [])
    found = [read(batch) for batch in each_batch(torch.utils.data.DataLoader(data, batch_size=2))]
    assert [len(arrays["labels"]) for arrays in found] == [2, 2, 1]
    np.testing.assert_array_equal(np.concatenate([arrays["images"] for arrays in found]), images.numpy())


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


@pytest.mark.parametrize("wanted", ["bfloat16", "float32"])
def test_bfloat16_tensors_of_torch_are_read(wanted):
    tensor = torch.tensor([[1.5, -2.0], [float("inf"), 3e38]], dtype=torch.bfloat16)
    array = one(wanted, "n", 2)(tensor)["x"]
    expected = tensor.view(torch.uint16) if wanted == "bfloat16" else tensor.float()
    np.testing.assert_array_equal(array, expected.numpy())
    np.testing.assert_array_equal(one(wanted, "n", 2)(tensor.requires_grad_())["x"], expected.numpy())
    with pytest.raises(BatchError, match="must be int64, but is float32"):
        one("int64", "n", 2)(tensor.detach())


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


class OnDevice:
    """A tensor of PyTorch that is elsewhere, for a machine that has nowhere else."""

    dtype, device = torch.float32, "cuda:0"

    def __init__(self, tensor):
        self._tensor = tensor

    def detach(self):
        return self

    def cpu(self):
        return self._tensor

    def __array__(self, *_):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


def test_tensors_come_from_their_device_without_their_gradient():
    tensor = torch.tensor([1.0, 2.0])
    np.testing.assert_array_equal(one("float32", "n")(OnDevice(tensor))["x"], tensor.numpy())
    np.testing.assert_array_equal(one("float32", "n")(tensor.clone().requires_grad_())["x"], tensor.numpy())


Views = namedtuple("Views", ["left", "right"])


@pytest.mark.parametrize(
    ("names", "batch"),
    [
        (["batch.a", "batch.b", "y"], {"batch": {"a": 0, "b": 1}, "y": 2}),
        (["views_0", "views_1_0", "y"], {"views": [0, (1,)], "y": 2}),
        (["views.left", "views.right", "y"], {"views": Views(0, 1), "y": 2}),
        (["b.deep.a", "b.list_0", "y"], {"y": 2, "b": {"list": [1], "deep": {"a": 0}}}),
        (["a", "b", "y"], ({"b": 1, "a": 0}, 2)),
        (["a", "b", "y"], [{"b": 1}, 0, 2]),
        (["b.deep.a", "b.list_0", "y"], ({"b": {"list": [1], "deep": {"a": 0}}}, 2)),
        (["a", "b", "y"], ({"b": 1}, {"a": 0, "y": 2})),
    ],
)
def test_batches_may_be_nested_as_the_arguments_are(names, batch):
    read = BatchReader([InputSpec(name, "model", "int64", ()) for name in names], names)
    assert {name: int(array) for name, array in read(batch).items()} == dict(zip(names, (0, 1, 2), strict=True))


def test_what_leads_to_no_input_is_said_under_its_own_name():
    read = BatchReader([InputSpec("x_0", "model", "float32", ()), InputSpec("y", "loss", "float32", ())], ["x_0", "y"])
    with pytest.warns(UserWarning, match="holds `extra`, `id`, which nothing"):
        read({"x": [1.0, 2.0], "y": 1.0, "id": [1, 2, 3], "extra": {"y": 1.0}})
    with pytest.raises(BatchError, match=r"lacks the input `x_0`.*got x, y"):
        read({"x": {"0": 1.0}, "y": 1.0})
    with pytest.raises(BatchError, match="must hold 2 arrays"):
        read(({"x": [1.0]}, 1.0, 2.0))
