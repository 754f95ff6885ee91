"""The tables of values against what their papers and packages print."""

from __future__ import annotations

import numpy as np

from edgeopt.quantization.maps import NF4, dynamic, float8, linear_unsigned


def test_the_dynamic_map_of_eight_bits():
    """Numbers of bitsandbytes 0.50.2, `create_dynamic_map`."""
    signed, unsigned = dynamic(signed=True), dynamic(signed=False)
    assert signed.size == unsigned.size == 256
    assert signed[127] == 0.0
    assert unsigned[0] == 0.0
    np.testing.assert_allclose([signed[0], signed[-1], signed[128]], [-0.9929688, 1.0, 5.5e-7], rtol=1e-6)
    np.testing.assert_allclose([unsigned[1], unsigned[-2]], [3.25e-7, 0.99648440], rtol=1e-6)


def test_the_dynamic_map_of_four_bits():
    """Numbers of torchao 0.18.0, `QMAP_SIGNED`."""
    positive = [0.0055, 0.0325, 0.0775, 0.2125, 0.4375, 0.6625, 0.8875]
    expected = [*(-value for value in reversed(positive)), 0.0, *positive, 1.0]
    np.testing.assert_allclose(dynamic(signed=True, exponents=3), expected, rtol=1e-6)


def test_linear_and_normal_maps():
    np.testing.assert_array_equal(linear_unsigned(4), np.arange(1, 17) / 16)
    assert NF4.size == 16
    assert NF4[7] == 0.0
    assert np.all(np.diff(NF4) > 0)


def test_eight_bit_floats():
    for kind, largest, count in (("float8_e4m3fn", 448.0, 253), ("float8_e5m2", 57344.0, 247)):
        values, codes = float8(kind)
        assert values.size == codes.size == count
        assert np.all(np.diff(values) > 0)
        np.testing.assert_allclose(np.min(values[values > 0]) * largest, 2.0**-9 if "e4m3" in kind else 2.0**-16)
