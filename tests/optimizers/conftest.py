from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import array_api_compat.numpy as numpy_namespace
import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch

from edgeopt import tracing
from edgeopt.compat.ingredients import draw
from edgeopt.optimizers import (
    Curvature,
    GaussNewtonBartlett,
    GaussNewtonSketch,
    KroneckerFactor,
    LossValue,
    Noise,
    Optimizer,
    initial_state,
)

NumpyArray = np.ndarray[Any, Any]
Result = tuple[NumpyArray, dict[str, NumpyArray]]
# From the first parameter and one gradient for each step to the last parameter, in float64; ingredients of all steps
# follow by name.
Reference = Callable[..., NumpyArray]
Provide = Callable[..., dict[str, NumpyArray]]


@pytest.fixture(scope="session")
def ingredients() -> Provide:
    """What an update after so many needs beside its gradient: fixed random numbers, and what is given as curvature.

    Where no loss is given it goes up and down between 1 and 3, whatever the gradient.
    """

    def measured(need: Curvature, curvature: NumpyArray, grad: NumpyArray, tangents: NumpyArray) -> NumpyArray:
        if isinstance(need, KroneckerFactor):
            matrix = curvature.reshape(curvature.shape[0], -1)
            return np.mean(matrix**2 if need.squared else matrix, axis=1 if need.side == "rows" else 0)
        if isinstance(need, GaussNewtonSketch):
            flat = tangents.reshape(need.count, -1)
            bent = np.stack([*(flat * np.abs(curvature).reshape(-1)), grad.reshape(-1)])
            return flat @ bent.T
        return np.abs(curvature) if isinstance(need, GaussNewtonBartlett) else curvature

    def provide(
        optimizer: Optimizer,
        param: NumpyArray,
        curvature: NumpyArray,
        done: int,
        grad: NumpyArray | None = None,
        loss: float | None = None,
    ) -> dict[str, NumpyArray]:
        given: dict[str, NumpyArray] = {}
        needs = {**optimizer.ingredients(param), **optimizer.shared_ingredients({"": param})}
        for place, (name, need) in enumerate(needs.items()):
            if isinstance(need, Noise):
                given[name] = draw(need, param.shape, 1, done, place).astype(param.dtype)
            elif isinstance(need, LossValue):
                given[name] = np.asarray(2.0 + np.cos(done) if loss is None else loss, param.dtype)
            elif isinstance(need, Curvature):
                slope = curvature if grad is None else grad
                array = measured(need, curvature, slope, given.get(getattr(need, "tangents", ""), param))
                due = done % need.every == 0
                given[name] = array.astype(param.dtype) if due else np.zeros(array.shape, param.dtype)
        return given

    return provide


@pytest.fixture(scope="session")
def train(ingredients: Provide) -> Callable[..., Result]:
    """Run an optimizer on one parameter, as the exported graph would, and return the parameter and its state."""

    def run(
        optimizer: Optimizer,
        xp: Any,
        start: NumpyArray,
        gradient: Callable[[Any, int], Any],
        steps: int,
        hyper: Mapping[str, float] | None = None,
        curvature: Callable[[Any], Any] | None = None,  # the gradient itself by default
        loss: Callable[[Any], float] | None = None,  # see `ingredients` for what there is by default
    ) -> Result:
        def scalars(numbers: Mapping[str, float]) -> dict[str, Any]:
            return {name: xp.asarray(value, dtype=xp.float64) for name, value in numbers.items()}

        own = scalars({**optimizer.hyperparameters(), **(hyper or {})})
        of_schedule = scalars(optimizer.schedule.hyperparameters())
        param = xp.asarray(start)
        state = {slot: xp.asarray(value) for slot, value in initial_state(optimizer, start).items()}
        for done in range(steps):
            lr = optimizer.schedule(xp, of_schedule, xp.asarray(done, dtype=xp.int64))
            grad = xp.asarray(gradient(param, done))
            step = xp.asarray(done + 1, dtype=xp.int64)
            bent = np.asarray(grad if curvature is None else curvature(np.asarray(param)))
            value = None if loss is None else loss(np.asarray(param))
            needed = ingredients(optimizer, start, bent, done, np.asarray(grad), value)
            given = {name: xp.asarray(array) for name, array in needed.items()}
            param, state = optimizer.update(xp, param, grad, {**state, **given}, {**own, "lr": lr}, step)
        return np.asarray(param), {slot: np.asarray(value) for slot, value in state.items()}

    return run


@pytest.fixture(scope="session")
def train_onnx(ingredients: Provide) -> Callable[[Optimizer, NumpyArray, NumpyArray], NumpyArray]:
    """Record one step as a graph, run it once for each gradient in ONNX Runtime, and return the parameter."""

    def run(optimizer: Optimizer, start: NumpyArray, grads: NumpyArray) -> NumpyArray:
        state = {"param": start, **initial_state(optimizer, start)}
        numbers = {**optimizer.schedule.hyperparameters(), **optimizer.hyperparameters()}
        hyper = {f"hyper.{name}": np.asarray(value) for name, value in numbers.items()}
        given = ingredients(optimizer, start, start, 0)
        inputs = {**state, **given, "grad": start, **hyper, "done": np.asarray(0)}

        graph = tracing.new_graph("step")
        tracer = tracing.Tracer(graph)
        x = {name: tracer.input(name, value.dtype, value.shape) for name, value in inputs.items()}
        numbers_in = {name: x[f"hyper.{name}"] for name in numbers}
        lr = optimizer.schedule(tracing, numbers_in, x["done"])
        slots = {slot: x[slot] for slot in (*state, *given) if slot != "param"}
        step = x["done"] + np.int64(1)
        param, updated = optimizer.update(tracing, x["param"], x["grad"], slots, {**numbers_in, "lr": lr}, step)
        for name, value in {"param": param, **updated}.items():
            tracer.output(value, f"next.{name}")
        model = ir.to_proto(tracing.new_model(graph)).SerializeToString()
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

        read = {value.name for value in session.get_inputs()}
        outputs = [value.name for value in session.get_outputs()]
        for done, grad in enumerate(grads):
            given = ingredients(optimizer, start, grad, done)
            feed = {**state, **given, "grad": grad, **hyper, "done": np.asarray(done)}
            results = session.run(outputs, {name: value for name, value in feed.items() if name in read})
            state = {name.removeprefix("next."): value for name, value in zip(outputs, results, strict=True)}
        return np.asarray(state["param"])

    return run


@pytest.fixture(scope="session")
def train_torch() -> Callable[..., Result]:
    """Run a torch optimizer on one parameter with given gradients."""

    def run(
        optimizer: Callable[..., torch.optim.Optimizer], start: NumpyArray, grads: NumpyArray, **settings: Any
    ) -> Result:
        param = torch.nn.Parameter(torch.tensor(start))
        rule = optimizer([param], **settings)
        for grad in grads:
            param.grad = torch.tensor(grad)
            rule.step()
        state = rule.state[param]
        return param.detach().numpy(), {name: value.numpy() for name, value in state.items() if value is not None}

    return run


@pytest.fixture(scope="session")
def draws() -> Callable[..., tuple[NumpyArray, NumpyArray]]:
    """A parameter and gradients from 1e-9 to 10, so that the place of an eps matters.

    The first gradient is zero in a quarter of the elements. For what depends on the condition of matrices the smallest
    magnitude may be chosen.
    """

    def make(
        steps: int, shape: tuple[int, ...] = (6, 4), dtype: Any = np.float64, smallest: float = 1e-9
    ) -> tuple[NumpyArray, NumpyArray]:
        rng = np.random.default_rng(5)
        grads = rng.normal(size=(steps, *shape)) * 10.0 ** rng.uniform(np.log10(smallest), 1, (1, *shape))
        grads[0].reshape(-1)[::4] = 0.0
        return rng.normal(size=shape).astype(dtype), grads.astype(dtype)

    return make


@pytest.fixture(scope="session")
def assert_follows(
    train: Callable[..., Result],
    train_onnx: Callable[[Optimizer, NumpyArray, NumpyArray], NumpyArray],
    draws: Callable[..., tuple[NumpyArray, NumpyArray]],
    ingredients: Provide,
) -> Callable[..., None]:
    """Compare a rule with its reference: 25 steps in float64, and 200 in float32 on ONNX Runtime.

    Tolerances are relative to the parameter, or to 1 where that is smaller.
    """

    def check(
        optimizer: Optimizer,
        reference: Reference,
        shapes: Sequence[tuple[int, ...]] = ((6, 4),),
        float64: float = 1e-12,
        float32: float = 2e-5,
        smallest: float = 1e-9,
    ) -> None:
        def expect(start: NumpyArray, grads: NumpyArray) -> NumpyArray:
            needs = [ingredients(optimizer, start, grad, done) for done, grad in enumerate(grads)]
            given = {name: np.stack([each[name] for each in needs]).astype(np.float64) for name in needs[0]}
            return reference(start.astype(np.float64), grads.astype(np.float64), **given)

        for shape in shapes:
            start, grads = draws(25, shape, smallest=smallest)
            param, _ = train(optimizer, numpy_namespace, start, lambda _, i, grads=grads: grads[i], 25)
            expected = expect(start, grads)
            assert not np.array_equal(expected, start)
            np.testing.assert_allclose(param, expected, rtol=float64, atol=float64, err_msg=f"{shape} in float64")

            start, grads = draws(200, shape, np.float32, smallest)
            expected = expect(start, grads)
            param = train_onnx(optimizer, start, grads)
            np.testing.assert_allclose(param, expected, rtol=float32, atol=float32, err_msg=f"{shape} in float32")

    return check
