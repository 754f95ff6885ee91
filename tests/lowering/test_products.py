"""Products with a vector on the right, which ONNX Runtime computes without the transposition in front."""

from __future__ import annotations

import numpy as np
import pytest

from edgeopt.tracing import op

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("shape", "order"), [((3, 3), [1, 0]), ((2, 3), [1, 0]), ((4, 3, 3), [0, 2, 1])])
def test_a_transposed_matrix_times_a_vector(lowered, shape, order, dtype):
    matrix = RANDOM.standard_normal(shape).astype(dtype)
    vector = RANDOM.standard_normal(shape[-2]).astype(dtype)

    def product(x):
        return {"y": op.MatMul(op.Transpose(x["matrix"], perm=order), x["vector"])}

    program = lowered(product, {"matrix": matrix, "vector": vector})
    np.testing.assert_allclose(program.run()["y"], matrix.transpose(order) @ vector, rtol=1e-5)


def test_a_vector_on_the_left_and_two_vectors_stay(lowered):
    matrix, vector = RANDOM.standard_normal((2, 3)), RANDOM.standard_normal(2)

    def products(x):
        return {
            "left": op.MatMul(x["vector"], x["matrix"]),
            "both": op.MatMul(x["vector"], x["vector"]),
        }

    program = lowered(products, {"matrix": matrix, "vector": vector})
    assert program.operators.count("MatMul") == len(program.operators) == 2
    np.testing.assert_allclose(program.run()["left"], vector @ matrix)
