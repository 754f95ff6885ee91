from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgeopt.tracing import op


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot_of_doubles(axis: int, lowered: Callable[..., Any]) -> None:
    inputs = {"indices": np.asarray([[0, 2], [-1, 1]]), "values": np.asarray([0.25, -3.0])}
    model = lowered(
        lambda arrays: {"y": op.OneHot(arrays["indices"], np.int64(3), arrays["values"], axis=axis)}, inputs
    )
    hot = inputs["indices"][..., None] % 3 == np.arange(3)
    np.testing.assert_array_equal(model.run()["y"], np.moveaxis(np.where(hot, -3.0, 0.25), -1, axis))


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_hardmax_of_doubles(axis: int, lowered: Callable[..., Any]) -> None:
    """The first of several largest elements is the one."""
    x = np.asarray([[1.0, 3.0, 3.0], [5.0, 0.0, 3.0]])
    model = lowered(lambda arrays: {"y": op.Hardmax(arrays["x"], axis=axis)}, {"x": x})
    expected = np.expand_dims(x.argmax(axis), axis) == np.indices(x.shape)[axis]
    np.testing.assert_array_equal(model.run()["y"], expected.astype(np.float64))
