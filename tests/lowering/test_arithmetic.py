from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgeopt.testing import check_gradients
from edgeopt.tracing import op

DIVIDENDS = np.asarray([-7.5, -3.0, -1.0, 1.0, 3.0, 7.5, 6.0], np.float32)


@pytest.mark.parametrize("divisor", [2.0, -2.0, 3.5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_remainder_with_the_sign_of_the_divisor(divisor: float, dtype: Any, lowered: Callable[..., Any]) -> None:
    """Which is numpy's, but C's is the only one that kernels compute for floats."""
    inputs = {"x": DIVIDENDS.astype(dtype), "y": np.asarray(divisor, dtype)}
    model = lowered(lambda arrays: {"z": op.Mod(arrays["x"], arrays["y"])}, inputs)
    np.testing.assert_allclose(model.run()["z"], np.mod(inputs["x"], inputs["y"]), rtol=1e-6)


def test_gradients_of_the_remainder() -> None:
    check_gradients(lambda x, y: op.Mod(x, y), [DIVIDENDS[:-2].astype(np.float64) + 0.3, np.asarray(2.0)])


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint64])
def test_exponents_of_every_type(dtype: Any, lowered: Callable[..., Any]) -> None:
    inputs = {"x": DIVIDENDS, "y": np.asarray([0, 1, 2, 3, 0, 1, 2], dtype)}
    model = lowered(lambda arrays: {"z": op.Pow(arrays["x"], arrays["y"])}, inputs)
    np.testing.assert_allclose(model.run()["z"], DIVIDENDS ** inputs["y"].astype(np.float32), rtol=1e-6)
