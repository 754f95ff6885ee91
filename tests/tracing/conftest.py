"""Programs of traced arrays, run by ONNX Runtime and by onnx's reference evaluator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from edgeopt.tracing import Array, Tracer, new_graph, new_model


@pytest.fixture
def tracer() -> Tracer:
    """A tracer of an empty graph."""
    return Tracer(new_graph("traced"))


@pytest.fixture(scope="session")
def run_both() -> Callable[..., tuple[Any, Any]]:
    """Trace a function of arrays, and return its result on both runtimes."""

    def run(
        function: Callable[..., Array],
        arrays: Sequence[Any],
        shapes: Mapping[int, tuple[int | str | None, ...]] | None = None,
    ) -> tuple[Any, Any]:
        tracer = Tracer(new_graph("traced"))
        feeds: dict[str, Any] = {f"x{i}": np.asarray(array) for i, array in enumerate(arrays)}
        inputs = [
            tracer.input(name, value.dtype, (shapes or {}).get(i, value.shape))
            for i, (name, value) in enumerate(feeds.items())
        ]
        result = function(*inputs)
        tracer.output(result, "result")
        model = ir.serde.serialize_model(new_model(tracer.graph))
        onnx.checker.check_model(model, full_check=True)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        got: Any = session.run(["result"], feeds)[0]
        assert got.dtype == result.dtype
        assert len(got.shape) == result.ndim
        assert all(not isinstance(dim, int) or dim == size for dim, size in zip(result.shape, got.shape, strict=True))
        evaluated: Any = ReferenceEvaluator(model).run(["result"], feeds)
        return got, evaluated[0]

    return run
