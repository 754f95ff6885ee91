"""Weights in few bits: what is kept, what is lost, and what a bundle does with them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edgeopt.quantization import Codebook
from edgeopt.quantization.maps import NF4
from edgeopt_runtime.manifest import Encoded, TensorSpec
from edgeopt_runtime.narrow import decoded, encoded, parts_fit

INT4 = tuple(code / 7 for code in range(-8, 8))
TABLES = {"int4": INT4, "nf4": tuple(map(float, NF4))}


def laid_out(kind: str, shape: tuple[int, ...], axis: int = 0) -> tuple[Encoded, TensorSpec, dict[str, TensorSpec]]:
    spec = TensorSpec("w", "parameter", "float32", shape)
    if kind == "float16":
        entry, parts = Encoded("w", "w.codes"), {"w.codes": ("float16", shape)}
    elif kind == "int8":
        scales = tuple(length if place == axis else 1 for place, length in enumerate(shape))
        entry, parts = (
            Encoded("w", "w.codes", "w.scales"),
            {"w.codes": ("int8", shape), "w.scales": ("float32", scales)},
        )
    else:
        entry = Encoded("w", "w.codes", "w.scales", TABLES[kind], 64)
        size = math.prod(shape)
        parts = {"w.codes": ("uint8", (shape[0], size // shape[0] // 2)), "w.scales": ("float32", (size // 64,))}
    return entry, spec, {name: TensorSpec(name, "buffer", *about) for name, about in parts.items()}


WEIGHTS = hnp.arrays(
    np.float32, st.sampled_from([(2, 64), (3, 128), (64, 64)]), elements=st.floats(-1e4, 1e4, width=32)
)


@settings(max_examples=60, deadline=None)
@given(array=WEIGHTS, kind=st.sampled_from(["float16", "int8", "int4", "nf4"]))
def test_the_error_is_that_of_the_format(array, kind):
    entry, spec, specs = laid_out(kind, array.shape)
    assert parts_fit(entry, spec, specs)
    parts = encoded(entry, array, specs)
    assert {name: (part.dtype, part.shape) for name, part in parts.items()} == {
        name: (np.dtype(one.dtype), one.shape) for name, one in specs.items()
    }
    found = decoded(entry, spec, parts)
    assert found.dtype == np.float32
    assert found.shape == array.shape
    rows = array.reshape(-1, array.shape[1] if kind == "int8" else 64)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    # Half the widest gap between neighbours, relative to the largest of those that share a scale.
    share = {"int8": 0.5 / 127, "int4": 0.5 / 7, "nf4": 0.5 * np.diff(NF4).max(), "float16": 2.0**-11}[kind]
    limit = largest * share * (1 + 1e-5) + (2.0**-24 if kind == "float16" else 1e-37)
    assert (np.abs(found.reshape(rows.shape) - rows) <= limit).all()


@settings(max_examples=40, deadline=None)
@given(array=WEIGHTS, kind=st.sampled_from(["float16", "int8", "int4", "nf4"]))
def test_what_was_decoded_is_encoded_without_loss(array, kind):
    entry, spec, specs = laid_out(kind, array.shape)
    once = decoded(entry, spec, encoded(entry, array, specs))
    again = decoded(entry, spec, encoded(entry, once, specs))
    np.testing.assert_allclose(again, once, rtol=1e-6, atol=0)


def test_int4_takes_the_nearest_of_fifteen_even_steps():
    array = np.random.default_rng(0).standard_normal((32, 128)).astype(np.float32)
    entry, spec, specs = laid_out("int4", array.shape)
    blocks = array.astype(np.float64).reshape(-1, 64)
    scales = np.abs(blocks).max(axis=1, keepdims=True) / 7
    expected = (np.rint(blocks / scales) * scales).reshape(array.shape)
    np.testing.assert_allclose(decoded(entry, spec, encoded(entry, array, specs)), expected, rtol=1e-6, atol=1e-7)


def test_nf4_is_that_of_the_optimizers_state():
    kind = "nf4"
    # Which is compared with bitsandbytes and torchao on its own.
    array = np.random.default_rng(0).standard_normal((32, 128)).astype(np.float32)
    entry, spec, specs = laid_out(kind, array.shape)
    parts = encoded(entry, array, specs)
    book = Codebook(TABLES[kind], 64)
    expected = book.encode(np, array)
    np.testing.assert_array_equal(parts["w.codes"].reshape(-1), expected["codes"])
    np.testing.assert_array_equal(parts["w.scales"].reshape(-1), expected["absmax"].reshape(-1))
    np.testing.assert_array_equal(decoded(entry, spec, parts), book.decode(np, expected, array.shape, np.float32))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_int8_is_pytorchs_per_channel(axis):
    torch = pytest.importorskip("torch")
    # Its quantized tensors are to go; the arithmetic is the same in its fake quantization.
    array = np.random.default_rng(0).standard_normal((6, 5, 4)).astype(np.float32)
    entry, spec, specs = laid_out("int8", array.shape, axis)
    parts = encoded(entry, array, specs)
    scales = torch.from_numpy(parts["w.scales"].reshape(-1))
    zeros = torch.zeros(len(scales), dtype=torch.int32)
    expected = torch.fake_quantize_per_channel_affine(torch.from_numpy(array), scales, zeros, axis, -127, 127)
    np.testing.assert_allclose(decoded(entry, spec, parts), expected.numpy(), rtol=1e-6)


def test_zeros_stay_zeros():
    for kind in ("float16", "int8", "int4", "nf4"):
        entry, spec, specs = laid_out(kind, (2, 64))
        assert not decoded(entry, spec, encoded(entry, np.zeros((2, 64), np.float32), specs)).any()


@pytest.mark.parametrize(
    ("part", "dtype", "shape"),
    [
        ("w.codes", "int8", (2, 32)),
        ("w.codes", "uint8", (2, 31)),
        ("w.scales", "float32", (3,)),
        ("w.scales", "float16", (2,)),
    ],
)
def test_parts_that_make_no_weight_are_told(part, dtype, shape):
    entry, spec, specs = laid_out("nf4", (2, 64))
    assert not parts_fit(entry, spec, {**specs, part: TensorSpec(part, "buffer", dtype, shape)})
    assert not parts_fit(entry, spec, {name: one for name, one in specs.items() if name != part})
