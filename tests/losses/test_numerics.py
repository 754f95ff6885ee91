from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeopt.losses import logsumexp


def exactly(values):
    """A sum of exponentials in its textbook form, shifted so that it cannot overflow."""
    largest = max(values)
    return largest + math.log(math.fsum(math.exp(value - largest) for value in values))


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6))
def test_equals_the_definition_at_any_magnitude(xp, values):
    result = logsumexp(xp, xp.asarray([values], dtype=xp.float64), axis=1)
    assert result.shape == (1, 1)
    np.testing.assert_allclose(float(result[0, 0]), exactly(values), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([-np.inf, 0.0], 0.0),
        ([-np.inf, -np.inf], -np.inf),
        ([np.inf, 0.0], np.inf),
        ([np.nan, 0.0], np.nan),
    ],
    ids=str,
)
def test_infinities_and_nan(xp, row, expected):
    with np.errstate(divide="ignore", over="ignore"):
        result = logsumexp(xp, xp.asarray([row], dtype=xp.float64), axis=1)
    np.testing.assert_equal(float(result[0, 0]), expected)
