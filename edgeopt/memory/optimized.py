"""What ONNX Runtime makes of a graph: functions inlined, operators fused, nodes in the order in which they run."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx
import onnxruntime

from edgeopt_runtime.errors import GraphError
from edgeopt_runtime.providers import CPU, LOG_FATAL_ONLY, RUNTIME_ERRORS, QuietSession

__all__ = ["optimized"]


def optimized(graph: bytes) -> onnx.ModelProto:
    """The graph as the CPU runs it without a native library, its symbolic dimensions left open as in a session.

    Raises:
        GraphError: ONNX Runtime refuses it.
    """
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = LOG_FATAL_ONLY
    settings.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "optimized.onnx"
        settings.optimized_model_filepath = str(file)
        try:
            QuietSession(graph, settings, providers=[CPU])
        except RUNTIME_ERRORS as error:
            raise GraphError(f"ONNX Runtime {onnxruntime.__version__} refuses the graph: {error}.") from error
        # It writes the nodes in the order of its execution plan.
        return onnx.load(file)
