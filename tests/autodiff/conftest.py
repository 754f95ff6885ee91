"""A row of a table of gradient rules, checked against finite differences and against torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch

from edgeopt.autodiff import backward
from edgeopt.lowering import lower
from edgeopt.testing import check_gradients
from edgeopt.tracing import Array, Tracer, new_graph, new_model, op

Arrays = dict[str, Any]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `row` runs for each row of its module's ROWS: (operator, torch's function, shapes, how).

    `how` is the operator's attributes, or a function of the inputs that applies it.
    """
    if "row" in metafunc.fixturenames:
        rows = metafunc.module.ROWS
        metafunc.parametrize("row", rows, ids=[f"{row[0]}-{position}" for position, row in enumerate(rows)])


def applied(operator: str, how: Mapping[str, Any] | Callable[..., Array]) -> Callable[..., Array]:
    if callable(how):
        return how
    return lambda *inputs: getattr(op, operator)(*inputs, **how)


def random_inputs(shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    random = np.random.default_rng(7)
    return [np.asarray(random.uniform(-2.0, 2.0, shape)) for shape in shapes]


class Step:
    """A function's output and gradients as one float32 graph; dimensions of its inputs may have names."""

    def __init__(self, function: Callable[..., Array], shapes: Sequence[tuple[int | str, ...]]) -> None:
        tracer = Tracer(new_graph("step"))
        inputs = [tracer.input(f"input_{i}", np.float32, shape) for i, shape in enumerate(shapes)]
        output = function(*inputs)
        cotangent = tracer.input("cotangent", np.float32, output.shape)
        gradients = backward(tracer, {output.value: cotangent}, [x.value for x in inputs])
        tracer.output(output, "output")
        for position, gradient in enumerate(gradients):
            assert gradient is not None
            tracer.output(gradient, f"gradient_{position}")
        lower(tracer)
        self.model = ir.serde.serialize_model(new_model(tracer.graph))
        onnx.checker.check_model(self.model, full_check=True)
        self._session = onnxruntime.InferenceSession(self.model.SerializeToString(), providers=["CPUExecutionProvider"])

    def run(self, inputs: Sequence[Any], cotangent: Any) -> list[Any]:
        """The output, then the gradients."""
        feeds = {f"input_{i}": x for i, x in enumerate(inputs)}
        return list(self._session.run(None, {**feeds, "cotangent": np.asarray(cotangent)}))


def assert_same_as_torch(
    function: Callable[..., Array],
    reference: Callable[..., torch.Tensor],
    arrays: Sequence[Any],
    step: Step | None = None,
) -> None:
    """Output and gradients of a random projection of it, in float32."""
    arrays = [np.asarray(array, np.float32) for array in arrays]
    tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
    expected = reference(*tensors)
    cotangent = np.random.default_rng(3).standard_normal(tuple(expected.shape)).astype(np.float32)
    expected.backward(torch.tensor(cotangent))
    results = (step or Step(function, [array.shape for array in arrays])).run(arrays, cotangent)
    wanted = [expected.detach(), *(torch.zeros_like(x) if x.grad is None else x.grad for x in tensors)]
    for result, tensor in zip(results, wanted, strict=True):
        assert result.shape == tuple(tensor.shape)
        np.testing.assert_allclose(result, tensor.numpy(), rtol=1e-3, atol=1e-3 * (float(tensor.abs().max()) + 1e-6))


@pytest.fixture
def check_row() -> Callable[..., None]:
    """Check a rule, and the rules of what it emits, by differences; then compare it with torch."""

    def check(row: tuple[Any, ...], order: int = 2) -> None:
        operator, reference, shapes, how = row
        function = applied(operator, how)
        arrays = random_inputs(shapes)
        for level in range(1, order + 1):
            check_gradients(function, arrays, order=level, directions=2)
        if reference is not None:
            assert_same_as_torch(function, reference, arrays)

    return check


@pytest.fixture
def check_row_with_names() -> Callable[..., None]:
    """Check a rule in one graph whose dimensions have names, at several sizes of the first one."""

    def check(row: tuple[Any, ...], dims: Sequence[tuple[int | str, ...]], sizes: Sequence[int] = (2, 3)) -> None:
        operator, reference, shapes, how = row
        function = applied(operator, how)
        step = Step(function, dims)
        first = dims[0][0]
        for size in sizes:
            grown = [
                tuple(size if name == first else dim for dim, name in zip(shape, named, strict=True))
                for shape, named in zip(shapes, dims, strict=True)
            ]
            assert_same_as_torch(function, reference, random_inputs(grown), step)

    return check


@pytest.fixture
def make_step() -> Callable[..., Step]:
    """The class above."""
    return Step


@pytest.fixture
def lowered_in_double() -> Callable[..., Any]:
    """The value of a function of one array in float64, where operators without a kernel are lowered."""

    def run(function: Callable[[Array], Array], x: Any) -> Any:
        tracer = Tracer(new_graph("double"))
        tracer.output(function(tracer.input("x", np.float64, x.shape)), "y")
        lower(tracer)
        model = ir.serde.serialize_model(new_model(tracer.graph))
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(None, {"x": np.asarray(x, np.float64)})[0]

    return run
