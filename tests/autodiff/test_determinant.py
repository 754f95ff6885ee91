from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from edgeopt.autodiff import backward
from edgeopt.errors import UnsupportedOperatorError
from edgeopt.tracing import Tracer, new_graph, op
from edgeopt.tracing.shapes import Shape

ROWS: list[tuple[Any, ...]] = [
    ("Det", torch.linalg.det, [(1, 1)], {}),
    ("Det", torch.linalg.det, [(2, 2)], {}),
    ("Det", torch.linalg.det, [(2, 3, 3)], {}),
    ("Det", torch.linalg.det, [(2, 1, 4, 4)], {}),
    ("Det", torch.linalg.det, [(7, 7)], {}),
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


def test_named_dimensions(check_row_with_names: Callable[..., None]) -> None:
    check_row_with_names(ROWS[2], [("batch", 3, 3)])


def test_a_singular_matrix_has_a_gradient(make_step: Callable[..., Any]) -> None:
    matrix = np.asarray([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.0, 1.0, 5.0]], np.float32)
    _, gradient = make_step(lambda x: op.Det(x), [(3, 3)]).run([matrix], np.float32(1))
    np.testing.assert_allclose(gradient, [[14, -10, 2], [-7, 5, -1], [0, 0, 0]], rtol=1e-6)


@pytest.mark.parametrize(("shape", "reason"), [((20, 20), "20 rows"), (("n", "n"), "not known")])
def test_large_matrices_are_refused(shape: Shape, reason: str) -> None:
    tracer = Tracer(new_graph("refused"))
    x = tracer.input("x", np.float32, shape)
    y = op.Det(x)
    with pytest.raises(UnsupportedOperatorError, match=reason):
        backward(tracer, {y.value: y}, [x.value])
