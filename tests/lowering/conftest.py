"""Graphs before and after lowering, run by ONNX Runtime and by onnx's reference evaluator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from edgeopt.lowering import lower
from edgeopt.tracing import Array, Tracer, new_graph, new_model

Program = Callable[[dict[str, Array]], Mapping[str, Array]]


class Lowered:
    """A program of traced arrays as a lowered model; inputs named `seed` and `draws` steer its random numbers."""

    def __init__(self, program: Program, inputs: Mapping[str, Any], shapes: Mapping[str, Any] | None = None) -> None:
        tracer = Tracer(new_graph("lowered"))
        self._inputs = {name: np.asarray(value) for name, value in inputs.items()}
        arrays = {
            name: tracer.input(name, value.dtype, (shapes or {}).get(name, value.shape))
            for name, value in self._inputs.items()
        }
        for name, array in program(arrays).items():
            tracer.output(array, name)
        lower(tracer, seed=arrays.get("seed"), draws=arrays.get("draws"))
        self.graph = tracer.graph
        self.model = ir.serde.serialize_model(new_model(tracer.graph))
        onnx.checker.check_model(self.model, full_check=True)
        self._session: Any = None

    @property
    def operators(self) -> list[str]:
        return [node.op_type for node in self.graph]

    def run(self, **changed: Any) -> dict[str, Any]:
        """On ONNX Runtime, with the inputs it was made with or others."""
        if self._session is None:
            self._session = onnxruntime.InferenceSession(
                self.model.SerializeToString(), providers=["CPUExecutionProvider"]
            )
        names = [output.name for output in self.model.graph.output]
        feeds = {**self._inputs, **{name: np.asarray(value) for name, value in changed.items()}}
        return dict(zip(names, self._session.run(names, feeds), strict=True))

    def evaluate(self) -> dict[str, Any]:
        """On onnx's reference evaluator."""
        names = [output.name for output in self.model.graph.output]
        return dict(zip(names, ReferenceEvaluator(self.model).run(names, self._inputs), strict=True))


@pytest.fixture(scope="session")
def lowered() -> Callable[..., Lowered]:
    """The class above."""
    return Lowered
