from __future__ import annotations

import array_api_compat.numpy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from edgeopt.optimizers.arithmetic.nibbles import pack, unpack

DTYPES = [np.float16, np.float32, np.float64]
LEVELS = array_shapes(max_dims=3, max_side=5).flatmap(
    lambda shape: arrays(np.uint8, (*shape[:-1], 2 * shape[-1]), elements=st.integers(0, 15))
)


@given(levels=LEVELS, dtype=st.sampled_from(DTYPES))
def test_levels_come_back(levels, dtype):
    packed = pack(array_api_compat.numpy, levels.astype(dtype))
    assert packed.dtype == np.uint8
    assert packed.nbytes == levels.size // 2
    half = levels.shape[-1] // 2
    np.testing.assert_array_equal(packed, levels[..., :half] | levels[..., half:] << 4)
    unpacked = unpack(array_api_compat.numpy, packed, dtype)
    assert unpacked.dtype == dtype
    np.testing.assert_array_equal(unpacked, levels)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_byte_survives(xp, run_as_onnx, dtype):
    every = np.arange(256, dtype=np.uint8).reshape(2, 128)

    def program(namespace, x):
        levels = unpack(namespace, x["packed"], x["like"].dtype)
        return {"levels": levels, "again": pack(namespace, levels)}

    inputs = {"packed": every, "like": np.zeros((), dtype)}
    expected = np.concatenate([every & 15, every >> 4], axis=-1)
    ours = program(xp, {name: xp.asarray(value) for name, value in inputs.items()})
    for results in (ours, run_as_onnx(program, inputs)):
        np.testing.assert_array_equal(np.asarray(results["levels"]), expected)
        np.testing.assert_array_equal(np.asarray(results["again"]), every)
