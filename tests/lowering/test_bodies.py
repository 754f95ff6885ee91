"""What is lacking is also said otherwise inside If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from edgeopt import tracing as xp
from edgeopt.errors import UnsupportedModelError
from edgeopt.lowering import lower
from edgeopt.tracing import Array, Tracer, new_graph, op
from edgeopt.tracing.scanning import scan
from edgeopt.tracing.subgraphs import all_nodes


def errors(x: Array) -> Array:
    """erf of each row, which only some rows need."""

    def step(carried: Any, slices: Any) -> Any:
        inner = slices[0].tracer
        then, otherwise = inner.subgraph("then"), inner.subgraph("otherwise")
        then.result(op.Erf(then.wrap(slices[0].value)))
        otherwise.result(op.Mish(otherwise.wrap(slices[0].value)))
        branches = {"then_branch": then.graph, "else_branch": otherwise.graph}
        (y,) = inner.emit("If", xp.sum(slices[0]) > 0.0, outputs=1, **branches)
        return [], [y]

    return scan(step, [], [x])[1][0]


def test_operators_without_a_double_kernel(lowered: Callable[..., Any]) -> None:
    x = np.asarray([[0.5, 1.5], [-0.5, -1.5]])
    program = lowered(lambda arrays: {"y": errors(arrays["x"])}, {"x": x})
    assert not {"Erf", "Mish"} & {node.op_type for node in all_nodes(program.graph)}
    rows = torch.tensor(x)
    expected = torch.stack([torch.erf(rows[0]), torch.nn.functional.mish(rows[1])])
    np.testing.assert_allclose(program.run()["y"], expected.numpy(), rtol=1e-12)


def test_random_numbers_are_refused() -> None:
    tracer = Tracer(new_graph("random"))
    x = tracer.input("x", np.float32, (4, 3))
    _, (y,) = scan(lambda carried, slices: ([], [op.Dropout(slices[0], 0.5, np.bool_(True))]), [], [x])
    tracer.output(y, "y")
    with pytest.raises(UnsupportedModelError, match="draw them before it"):
        lower(tracer, seed=tracer.constant(np.int64(0)), draws=tracer.constant(np.int64(0)))


def test_a_dropout_that_is_switched_off_is_not_random() -> None:
    tracer = Tracer(new_graph("off"))
    x = tracer.input("x", np.float32, (4, 3))
    _, (y,) = scan(lambda carried, slices: ([], [op.Dropout(slices[0], 0.5)]), [], [x])
    tracer.output(y, "y")
    lower(tracer)
