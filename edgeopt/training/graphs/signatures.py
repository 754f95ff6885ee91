"""The graphs of a bundle: those that train and use it, those of its optimizer alone, and one of second derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.autodiff import backward
from edgeopt.errors import SignatureError
from edgeopt.losses import Loss
from edgeopt.metrics import Metric
from edgeopt.tracing import Array
from edgeopt.training.forward import ForwardModel
from edgeopt.training.graphs.accumulation import add_gradients, mean_gradients
from edgeopt.training.graphs.builder import BuiltGraph, GraphBuilder
from edgeopt.training.graphs.noise import draw_tangents
from edgeopt.training.measurements import Layers, Passes, accumulated_sums, measured, measured_sums
from edgeopt.training.names import ACCUMULATED_WEIGHT
from edgeopt.training.plan import Plan
from edgeopt.training.updating.beginning import begin
from edgeopt.training.updating.groups import UpdateGroup
from edgeopt.training.updating.state import State
from edgeopt.training.updating.update import add_update
from edgeopt.training.updating.view import look_through, write_views
from edgeopt_runtime.manifest import InputSpec

__all__ = ["OPTIONAL", "SIGNATURES", "reset_graph", "view_graph"]

NumpyArray = np.ndarray[Any, Any]


def _loss_terms(builder: GraphBuilder, plan: Plan, targets: Sequence[InputSpec]) -> tuple[Array, Array]:
    """The loss sum and its weight."""
    with builder.tracer.scope("loss"):
        arrays = [builder.batch(spec) for spec in targets]
        return _scalars(plan.loss, *plan.loss.terms(xp, builder.predictions[plan.output], *arrays))


def _metric_terms(builder: GraphBuilder, plan: Plan, targets: Sequence[InputSpec]) -> list[tuple[str, Array, Array]]:
    """Name, sum and weight of each metric."""
    terms = []
    for metric in plan.metrics:
        with builder.tracer.scope(metric.name):
            arrays = [builder.batch(spec) for spec in targets]
            found = metric.terms(xp, builder.predictions[plan.output], *arrays)
            terms.append((metric.name, *_scalars(metric, *found)))
    return terms


def _scalars(owner: Loss | Metric, total: Array, weight: Array) -> tuple[Array, Array]:
    """A sum and its weight as they came.

    Raises:
        SignatureError: One of them is no floating-point scalar of the graph.
    """
    for what, term in (("sum", total), ("weight", weight)):
        if not isinstance(term, Array) or term.ndim or term.dtype.kind in "iub":
            raise SignatureError(
                f"{type(owner).__name__} must return a sum and a weight as floating-point arrays without dimensions, "
                f"but its {what} is {term}; write xp.sum(...), xp.astype(..., prediction.dtype), or xp.ones_like(...)."
            )
    return total, weight


def _passes(
    builder: GraphBuilder, plan: Plan, targets: Sequence[InputSpec], tangents: Mapping[str, Array], *, updating: bool
) -> Passes:
    """Forward and backward in training mode; reports loss and metrics, and keeps what the forward pass changes.

    Returns:
        What there is then: the gradient of every trainable parameter (zero for one that the loss does not depend on),
        of the mean loss if `updating` follows and of the loss sum otherwise, the weight between them, and more.
    """
    total, weight = _loss_terms(builder, plan, targets)
    metrics = _metric_terms(builder, plan, targets)
    parameters = {name: builder.state(name) for name in plan.trainable}
    layers = Layers(builder, plan)
    seed = 1.0 / weight if updating else xp.ones_like(total)
    if plan.recompute or builder.has_regions:
        seed = builder.drop_activations(seed, plan.recompute)
    wrt = [*(array.value for array in parameters.values()), *layers.outputs]
    found = backward(builder.tracer, {total.value: seed}, wrt)
    mean = _mean if updating else _mean_or_sum
    builder.metric("loss", mean(total, weight), weight)
    for name, value, metric_weight in metrics:
        builder.metric(name, mean(value, metric_weight))
    for name, value in builder.updated_buffers.items():
        builder.set_state(name, value)
    for name, value in builder.updated_parameters.items():
        # An update that follows begins with the written value, and writes the parameter itself.
        if not updating or name not in plan.trainable:
            builder.set_state(name, value)
    cotangents = [
        xp.zeros_like(builder.tracer.wrap(value)) if cotangent is None else cotangent
        for value, cotangent in zip(wrt, found, strict=True)
    ]
    return Passes(
        builder=builder,
        plan=plan,
        targets=targets,
        total=total,
        weight=weight,
        gradients=dict(zip(parameters, cotangents, strict=False)),
        layers=layers,
        cotangents=dict(zip(layers.outputs, cotangents[len(parameters) :], strict=True)),
        scale=weight if updating else xp.ones_like(weight),
        tangents=tangents,
    )


def _mean(total: Array, weight: Array) -> Array:
    return total / weight


def _mean_or_sum(total: Array, weight: Array) -> Array:
    """The mean; of a microbatch that weighs nothing (padding only) its sum, which is zero as well."""
    nothing = xp.equal(weight, 0.0)
    return total / xp.where(nothing, xp.ones_like(weight), weight)


def _step(model: ForwardModel, plan: Plan, state: State, targets: Sequence[InputSpec]) -> BuiltGraph:
    """(state, batch, hyper) → (state', loss, metrics)."""
    builder = GraphBuilder("step", state, model.train)
    tangents = draw_tangents(builder, plan.groups)
    passes = _passes(builder, plan, targets, tangents, updating=True)
    measurements = measured(builder, plan, measured_sums(passes), passes.weight)
    add_update(builder, plan, passes.gradients, {**measurements, **tangents})
    return builder.finish()


def _accumulate(model: ForwardModel, plan: Plan, state: State, targets: Sequence[InputSpec]) -> BuiltGraph:
    """(params, buffers, accumulators, batch) → (accumulators', buffers', loss): one microbatch."""
    builder = GraphBuilder("accumulate", state, model.train)
    passes = _passes(builder, plan, targets, draw_tangents(builder, plan.groups), updating=False)
    sums = measured_sums(passes)
    _add_to_accumulators(builder, plan, passes.gradients, passes.weight)
    for key, value in sums.items():
        accumulator = builder.state(key)
        builder.set_state(key, accumulator + xp.astype(value, accumulator.dtype))
    return builder.finish()


def _add_to_accumulators(builder: GraphBuilder, plan: Plan, sums: Mapping[str, Array], weight: Array) -> None:
    add_gradients(builder, plan.units, sums)
    accumulated = builder.state(ACCUMULATED_WEIGHT)
    builder.set_state(ACCUMULATED_WEIGHT, accumulated + xp.astype(weight, accumulated.dtype))


def _hessian_vector(model: ForwardModel, plan: Plan, state: State, targets: Sequence[InputSpec]) -> BuiltGraph:
    """(params, buffers, accumulators, batch, vector) → accumulators': adds H v, H the Hessian of the loss sum.

    The vector-Jacobian product of the gradient with v is Hᵀ v, and H is symmetric. The forward pass is that of
    `accumulate`, with the same random numbers, but the buffers stay as they are.
    """
    builder = GraphBuilder("hessian_vector", state, model.train)
    total, weight = _loss_terms(builder, plan, targets)
    parameters = {name: builder.state(name) for name in plan.trainable}
    values = [array.value for array in parameters.values()]
    gradients = backward(builder.tracer, {total.value: xp.ones_like(total)}, values)
    seeds: dict[ir.Value, Array] = {}
    for name, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None:
            vector = builder.vector(name)
            # Two parameters may have the very same gradient.
            seeds[gradient.value] = seeds[gradient.value] + vector if gradient.value in seeds else vector
    found = backward(builder.tracer, seeds, values)
    products = {
        name: xp.zeros_like(parameters[name]) if product is None else product
        for name, product in zip(parameters, found, strict=True)
    }
    _add_to_accumulators(builder, plan, products, weight)
    return builder.finish()


def _apply(model: ForwardModel, plan: Plan, state: State, targets: Sequence[InputSpec]) -> BuiltGraph:
    """(state, accumulators, hyper) → state': the update alone."""
    builder = GraphBuilder("apply", state)
    weight = builder.state(ACCUMULATED_WEIGHT)
    gradients = mean_gradients(builder, plan.units)
    measurements = measured(builder, plan, accumulated_sums(builder, plan), weight)
    add_update(builder, plan, gradients, {**measurements, **draw_tangents(builder, plan.groups)})
    return builder.finish()


def _evaluate(model: ForwardModel, plan: Plan, state: State, targets: Sequence[InputSpec]) -> BuiltGraph:
    """(params, batch) → loss and metrics, each with its weight; dropout off, running statistics."""
    builder = GraphBuilder("evaluate", state, model.evaluate)
    look_through(builder, plan.groups)
    total, weight = _loss_terms(builder, plan, targets)
    metrics = _metric_terms(builder, plan, targets)
    builder.metric("loss", total / weight, weight)
    for name, value, metric_weight in metrics:
        builder.metric(name, value / metric_weight, metric_weight)
    return builder.finish()


def _predict(model: ForwardModel, plan: Plan, state: State, targets: Sequence[InputSpec]) -> BuiltGraph:
    """(params, batch) → outputs."""
    builder = GraphBuilder("predict", state, model.evaluate)
    look_through(builder, plan.groups)
    for name in model.predicted:
        builder.output(name, builder.predictions[name])
    return builder.finish()


def reset_graph(state: State, groups: Sequence[UpdateGroup], parameters: Mapping[str, NumpyArray]) -> BuiltGraph:
    """(params) → the optimizer's state before the first update.

    Args:
        state: The tensors.
        groups: The rules and their parameters.
        parameters: The parameters by name, with the values that the first slots were made from.
    """
    builder = GraphBuilder("reset", state)
    begin(builder, groups, parameters)
    return builder.finish()


def view_graph(state: State, groups: Sequence[UpdateGroup]) -> BuiltGraph:
    """(params, optimizer state, hyper) → what stands for the parameters in evaluation; no outputs where they do."""
    builder = GraphBuilder("view", state)
    write_views(builder, groups)
    return builder.finish()


def _reset(model: ForwardModel, plan: Plan, state: State, targets: Sequence[InputSpec]) -> BuiltGraph:
    return reset_graph(state, plan.groups, model.parameters)


def _view(model: ForwardModel, plan: Plan, state: State, targets: Sequence[InputSpec]) -> BuiltGraph:
    return view_graph(state, plan.groups)


def _merge(model: ForwardModel, plan: Plan, state: State, targets: Sequence[InputSpec]) -> BuiltGraph | None:
    """(params) → the weights with which the plain model gives what this one gives with its adapters."""
    if model.merging is None:
        return None
    builder = GraphBuilder("merge", state, model.merging.merge)
    look_through(builder, plan.groups)
    for name, value in builder.predictions.items():
        builder.merged(name, value)
    return builder.finish()


def _predict_merged(model: ForwardModel, plan: Plan, state: State, targets: Sequence[InputSpec]) -> BuiltGraph | None:
    """(params, merged weights, batch) → outputs, without adapters."""
    if model.merging is None:
        return None
    builder = GraphBuilder("predict_merged", state, model.merging.plain, merged=model.merging.places)
    look_through(builder, plan.groups)
    for name in model.predicted:
        builder.output(name, builder.predictions[name])
    return builder.finish()


SIGNATURES: dict[str, Callable[[ForwardModel, Plan, State, Sequence[InputSpec]], BuiltGraph | None]] = {
    "step": _step,
    "accumulate": _accumulate,
    "apply": _apply,
    "evaluate": _evaluate,
    "predict": _predict,
    "reset": _reset,
    "view": _view,
    "merge": _merge,
    "predict_merged": _predict_merged,
    "hessian_vector": _hessian_vector,
}
# Built when asked for.
OPTIONAL = ("hessian_vector",)
