"""A choice between computations, and a loop, inside a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgeopt import tracing as xp
from edgeopt.tracing import cond, scan


@pytest.mark.parametrize("flag", [True, False])
def test_one_of_two_branches_is_computed(flag: bool, run_as_onnx: Callable[..., dict[str, Any]]) -> None:
    x, outer = np.asarray([1.0, 4.0], np.float32), np.asarray([10.0, 20.0], np.float32)

    def program(_: Any, given: Any) -> dict[str, Any]:
        both = cond(
            given["flag"],
            lambda x: [xp.sqrt(x), x + given["outer"]],
            lambda x: [x, given["outer"]],
            given["x"],
        )
        return {"first": both[0], "second": both[1]}

    found = run_as_onnx(program, {"flag": np.asarray(flag), "x": x, "outer": outer})
    np.testing.assert_array_equal(found["first"], np.sqrt(x) if flag else x)
    np.testing.assert_array_equal(found["second"], x + outer if flag else outer)


def test_a_scan_inside_a_branch(run_as_onnx: Callable[..., dict[str, Any]]) -> None:
    rows = np.arange(6, dtype=np.float64).reshape(3, 2)

    def program(_: Any, given: Any) -> dict[str, Any]:
        def total(rows: Any, start: Any) -> list[Any]:
            return scan(lambda state, slices: ([state[0] + slices[0]], []), [start], [rows])[0]

        due = xp.sum(given["rows"]) > 0.0
        return {"total": cond(due, total, lambda _, start: [start], given["rows"], given["start"])[0]}

    for sign in (1.0, -1.0):
        found = run_as_onnx(program, {"rows": sign * rows, "start": np.ones(2)})
        np.testing.assert_array_equal(found["total"], 1.0 + rows.sum(0) if sign > 0 else np.ones(2))
