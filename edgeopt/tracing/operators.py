"""`op`: every operator of the standard domain as a function of arrays, for code that thinks in ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgeopt.errors import TracingError
from edgeopt.tracing.array import Array

__all__ = ["op"]


class _Operators:
    """`op.Gemm(a, b, transA=1)` appends a Gemm node to the graph of its first traced operand.

    Attributes go by keyword. Operators with several outputs go through `Tracer.emit`.
    """

    def __getattr__(self, op_type: str) -> Callable[..., Array]:
        def emit(*inputs: Any, **attributes: Any) -> Array:
            traced = next((x for x in inputs if isinstance(x, Array)), None)
            if traced is None:
                raise TracingError(f"{op_type} has no traced operand, so the graph to add it to is not known.")
            result: Array = traced.tracer.emit(op_type, *inputs, **attributes)
            return result

        return emit


op = _Operators()
