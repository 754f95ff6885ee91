"""Every storage format: what it keeps, under numpy, PyTorch and ONNX Runtime."""

from __future__ import annotations

from typing import Any

import array_api_compat.numpy as numpy_namespace
import array_api_compat.torch as torch_namespace
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from edgeopt.errors import ConfigurationError
from edgeopt.quantization import FORMATS, Codebook, Companded, Format, as_state_format

SIGNED = {name: form.signed for name, form in FORMATS.items() if form.signed is not None}
UNSIGNED = {name: form.unsigned for name, form in FORMATS.items() if form.unsigned is not None}
BOTH = [*((f"{name}, signed", form, True) for name, form in SIGNED.items())]
BOTH += [(f"{name}, unsigned", form, False) for name, form in UNSIGNED.items()]

#: The largest difference from an element, over the largest magnitude of its block (of itself for bfloat16, of what a
#: matrix of rank 1 cannot say for the factored format).
WORST = {
    "int8, signed": 0.008,
    "int8, unsigned": 0.008,
    "int8_linear, signed": 0.5 / 127,
    "int8_linear, unsigned": 1 / 256,
    "int8_dynamic, signed": 0.9 / 2**7,
    "int8_dynamic, unsigned": 0.9 / 2**8,
    "int4, signed": 0.1125,
    "int4, unsigned": 1 / 16,
    "nf4, signed": 0.152,
    "nf4, unsigned": 1 / 16,
    "fp8_e4m3, signed": 1 / 28,
    "fp8_e4m3, unsigned": 1 / 28,
    "fp8_e5m2, signed": 1 / 14,
    "fp8_e5m2, unsigned": 1 / 14,
    "bf16, signed": 2.0**-8,
    "bf16, unsigned": 2.0**-8,
    "bf16_stochastic, signed": 2.0**-7,
    "bf16_stochastic, unsigned": 2.0**-7,
}

floats = st.floats(-(2.0**60), 2.0**60, width=32)


@pytest.fixture(params=BOTH, ids=[row[0] for row in BOTH])
def row(request: pytest.FixtureRequest) -> tuple[str, Format, bool]:
    return request.param


def decoded(form: Format, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(form.decode(numpy_namespace, form.first(array), array.shape, array.dtype))


def largest_of_block(array: np.ndarray[Any, Any], block: int) -> np.ndarray[Any, Any]:
    flat = np.abs(array.reshape(-1))
    rows = np.pad(flat, (0, -flat.size % block)).reshape(-1, block)
    return np.repeat(rows.max(axis=1), block)[: flat.size].reshape(array.shape)


@given(array=arrays(np.float32, array_shapes(max_dims=3, max_side=40), elements=floats))
@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("name", WORST)
def test_no_element_is_further_off_than_its_format_allows(name, array):
    form, signed = next((form, signed) for title, form, signed in BOTH if title == name)
    # Blocks whose quotients leave the normal range are a test of their own.
    array = np.where(np.abs(array) < 2.0**-60, 0, array if signed else np.abs(array)).astype(np.float32)
    near = np.abs(array) if name.startswith("bf16") else largest_of_block(array, getattr(form, "block", 1))
    assert np.all(np.abs(decoded(form, array) - array) <= WORST[name] * (1 + 1e-5) * near)


def test_the_largest_of_a_block_and_zeros_are_exact(row):
    name, form, signed = row
    array = np.zeros((3, 300), np.float32)
    assert not decoded(form, array).any()
    array[:, ::7] = 0.37
    if signed and "factored" not in name and not name.startswith("bf16"):
        np.testing.assert_allclose(decoded(form, array), array, rtol=1e-6)


def test_numpy_torch_and_onnx_runtime_agree(row, run_as_onnx):
    _, form, signed = row
    rng = np.random.default_rng(3)
    array = (rng.normal(size=(7, 90)) * 10.0 ** rng.uniform(-5, 2, (7, 90))).astype(np.float32)
    array = array if signed else np.abs(array)
    given_too = {"uniform": rng.uniform(size=array.shape).astype(np.float32)} if form.draws else {}

    def program(xp: Any, x: Any) -> dict[str, Any]:
        parts = form.encode(xp, x["array"], x.get("uniform"))
        # ONNX Runtime's types of bfloat16 do not come back to numpy.
        kept = {} if "values" in parts else {f"part.{name}": part for name, part in parts.items()}
        return {**kept, "again": form.decode(xp, parts, array.shape, x["array"].dtype)}

    inputs = {"array": array, **given_too}
    ours = program(numpy_namespace, inputs)
    theirs = program(torch_namespace, {name: torch.tensor(value) for name, value in inputs.items()})
    onnx = run_as_onnx(program, inputs)
    for name, expected in ours.items():
        for other in (theirs[name].numpy(), onnx[name]):
            assert other.dtype == expected.dtype
            # A quotient that differs in its last digit may lie on the other side of a middle.
            same = np.isclose(other.astype(float), expected.astype(float), rtol=1e-6, atol=1e-9)
            assert np.mean(~same) < 0.003, name


@pytest.mark.parametrize("name", [name for name, form, _ in BOTH if isinstance(form, Codebook)])
def test_codes_are_those_of_the_nearest_values(name):
    form, signed = next((form, signed) for title, form, signed in BOTH if title == name)
    assert isinstance(form, Codebook)
    rng = np.random.default_rng(4)
    array = rng.normal(size=5 * form.block) * 10.0 ** rng.uniform(-6, 0, 5 * form.block)
    array = array if signed else np.abs(array)
    rows = array.reshape(5, form.block)
    shares = rows / np.abs(rows).max(axis=1, keepdims=True)
    table = np.asarray(form.table, np.float32).astype(np.float64)
    nearest = np.abs(shares[..., None] - table).argmin(axis=-1).reshape(-1)
    if form.codes is not None:
        nearest = np.asarray(form.codes)[nearest]
    codes = form.first(array)["codes"]
    if form.packed:
        codes = np.stack([codes // 16, codes % 16], axis=1).reshape(-1)
    np.testing.assert_array_equal(codes, nearest)


def test_eight_bit_floats_are_those_of_numpy():
    """The bytes are the floats' own, but for ties, which go to the smaller value."""
    import ml_dtypes

    rng = np.random.default_rng(5)
    array = np.append(rng.normal(size=255), 4.0).astype(np.float32) * np.float32(448.0 / 4.0)
    codes = FORMATS["fp8_e4m3"].signed.first(array)["codes"]  # type: ignore[union-attr]  # it has one
    np.testing.assert_array_equal(codes, array.astype(ml_dtypes.float8_e4m3fn).view(np.uint8))


def test_random_rounding_is_right_in_the_mean():
    form = FORMATS["bf16_stochastic"].signed
    assert form is not None
    array = np.asarray([1.0, 1.001, -3.1416, 0.99999, 1e-20, 0.0], np.float32)
    uniform = ((np.arange(4000) + 0.5) / 4000).astype(np.float32)
    total = np.zeros(array.shape)
    for number in uniform:
        parts = form.encode(numpy_namespace, array, np.full_like(array, number))
        total += np.asarray(form.decode(numpy_namespace, parts, array.shape, array.dtype), np.float64)
    np.testing.assert_allclose(total / 4000, array, rtol=2.0**-8 / 1000)


def test_tiny_and_huge_blocks_stay_finite(row):
    _, form, _ = row
    for size in (1e-45, 1e-38, 1e36):
        array = np.full((4, 256), size, np.float32)
        assert np.isfinite(decoded(form, array)).all()


@pytest.mark.parametrize(
    ("name", "bits"),
    [("int8", 8.125), ("int8_dynamic", 8.125), ("int4", 4.25), ("nf4", 4.5), ("fp8_e4m3", 8.125), ("bf16", 16.0)],
)
def test_bits_of_an_element(name, bits):
    form = FORMATS[name].signed
    assert form is not None
    assert form.bits((64, 64)) == bits


def test_impossible_formats_are_refused():
    with pytest.raises(ConfigurationError, match="ascending"):
        Codebook((0.0, 1.0, 0.5))
    with pytest.raises(ConfigurationError, match="even"):
        Codebook((0.0, 1.0), block=3)
    with pytest.raises(ConfigurationError, match="root"):
        Companded(signed=True, root=3)
    with pytest.raises(ConfigurationError, match="int8_dynamic"):
        as_state_format("int7")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["int8_dynamic", "int4", "nf4", "fp8_e4m3", "fp8_e5m2"])
def test_the_nearest_value_is_found_on_both_sides_of_every_middle(name, dtype):
    """Beside a search through the whole table, for elements next to the middles, and at the edges of buckets."""
    for form in FORMATS[name][:2]:
        assert isinstance(form, Codebook)
        table = np.asarray(form.table, np.float32).astype(np.float64)
        middles = ((table[:-1] + table[1:]) / 2).astype(dtype)
        edges = (np.arange(1025) / 1024).astype(dtype) ** 4
        values = np.concatenate([middles, *(np.nextafter(middles, dtype(end)) for end in (-2, 2)), edges, -edges])
        values = np.clip(values, -1 if table[0] < 0 else 0, 1)
        expected = np.searchsorted(middles, values)
        rows = np.concatenate([values, np.ones(-values.size % 64, dtype)]).reshape(-1, 64)
        found = form._nearest(numpy_namespace, np.ascontiguousarray(rows)).reshape(-1)[: values.size]
        np.testing.assert_array_equal(found, expected if form.codes is None else np.asarray(form.codes)[expected])
