"""What tests of several packages use. Imports happen inside fixtures: some tests run where only the runtime is."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import pytest

Program = Callable[[Any, Mapping[str, Any]], Mapping[str, Any]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bundles",
        metavar="FOLDER",
        help="what tests/device/make_bundles.py wrote, for environments that cannot export",
    )


@pytest.fixture(scope="session", params=["numpy", "torch"])
def xp(request: pytest.FixtureRequest) -> Any:
    """The namespaces, beside the tracer, that every array program must run under."""
    return importlib.import_module(f"array_api_compat.{request.param}")


@pytest.fixture(scope="session")
def run_as_onnx() -> Callable[..., dict[str, Any]]:
    """Record `program(xp, inputs)` as a graph, check it, and run it in ONNX Runtime.

    The inputs named in `batched` get a symbolic first dimension.
    """
    import onnx
    import onnx_ir as ir
    import onnxruntime

    from edgeopt import tracing

    def run(program: Program, inputs: Mapping[str, Any], batched: Collection[str] = ()) -> dict[str, Any]:
        arrays = {name: np.asarray(value) for name, value in inputs.items()}
        graph = tracing.new_graph("program")
        tracer = tracing.Tracer(graph)
        traced = {
            name: tracer.input(name, array.dtype, ("batch", *array.shape[1:]) if name in batched else array.shape)
            for name, array in arrays.items()
        }
        for name, result in program(tracing, traced).items():
            tracer.output(result, name)
        model = ir.to_proto(tracing.new_model(graph))
        onnx.checker.check_model(model, full_check=True)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, arrays), strict=True))

    return run
