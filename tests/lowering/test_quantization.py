"""Quantization in a model that was made float64, against the definitions in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from edgeopt.testing import check_gradients
from edgeopt.testing.programs import Program, load


def run(text: str, *inputs: Any) -> list[Any]:
    model, values = load(onnx.parser.parse_model(text), list(inputs), {})
    return list(Program(model).run(values).values())


X = np.asarray([[-3.0, -0.25, 0.25, 0.75], [100.0, -100.0, 1.25, 0.1]])
SCALE = np.asarray([0.5, 0.25])

ROUND_TRIP = """
<ir_version: 9, opset_import: ["" : 19]>
quantized (float[2, 4] x, float[2] scale) => (float[2, 4] y) <{kind}[2] zero = {{2, 1}}> {{
    q = QuantizeLinear<axis = 0>(x, scale, zero)
    y = DequantizeLinear<axis = 0>(q, scale, zero)
}}
"""


@pytest.mark.parametrize(("kind", "low", "high"), [("int8", -128, 127), ("uint8", 0, 255)])
def test_there_and_back(kind: str, low: int, high: int) -> None:
    zero = np.asarray([[2.0], [1.0]])
    scale = SCALE[:, None]
    expected = (np.clip(np.round(X / scale) + zero, low, high) - zero) * scale
    (result,) = run(ROUND_TRIP.format(kind=kind), X, SCALE)
    np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_the_scale_of_fixed_integers_has_differences() -> None:
    text = """
    <ir_version: 9, opset_import: ["" : 19]>
    weights (float scale) => (float[3] y) <int8[3] q = {-3, 0, 5}, int8 zero = {1}> {
        y = DequantizeLinear(q, scale, zero)
    }
    """
    assert check_gradients(onnx.parser.parse_model(text), [np.asarray(0.5)])["scale"] < 1e-8
    np.testing.assert_allclose(run(text, np.asarray(0.5))[0], [-2.0, -0.5, 2.0])


def test_the_scale_of_small_floats() -> None:
    text = """
    <ir_version: 9, opset_import: ["" : 19]>
    weights (float scale) => (float[3] y) <float8e4m3fn[3] q = {0, 56, 192}> { y = DequantizeLinear(q, scale) }
    """
    # In E4M3 the bits of 56 are those of 1, and the bits of 192 those of -2.
    np.testing.assert_allclose(run(text, np.asarray(0.5))[0], [0.0, 0.5, -1.0])
    check_gradients(onnx.parser.parse_model(text), [np.asarray(0.5)])
