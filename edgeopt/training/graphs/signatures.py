"""The graphs of a bundle: those that train and use it, those of its optimizer alone, and one of second derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.autodiff import backward
from edgeopt.tracing import Array, Tracer
from edgeopt.training.forward import ForwardGraph, ForwardModel
from edgeopt.training.graphs.accumulation import add_gradients, add_weight, inverse_weight, mean_gradients
from edgeopt.training.graphs.builder import BuiltGraph, GraphBuilder
from edgeopt.training.graphs.noise import draw_tangents
from edgeopt.training.measurements import Layers, Passes, accumulated_sums, measured, measured_sums
from edgeopt.training.names import ACCUMULATED_WEIGHT
from edgeopt.training.objective import ShareSum, TracedTerm
from edgeopt.training.plan import Plan
from edgeopt.training.reports import LOSS, ResolvedMetric, loss_numbers, loss_sums, metric_numbers, metric_sums
from edgeopt.training.updating.beginning import begin
from edgeopt.training.updating.groups import UpdateGroup
from edgeopt.training.updating.state import State
from edgeopt.training.updating.update import add_update
from edgeopt.training.updating.view import look_through, write_views

__all__ = ["OPTIONAL", "SIGNATURES", "reset_graph", "view_graph"]

NumpyArray = np.ndarray[Any, Any]


def _sums(
    builder: GraphBuilder, plan: Plan, traced: Sequence[TracedTerm], metrics: Sequence[ResolvedMetric]
) -> dict[str, Array]:
    """What losses and metrics report, as sums that add up over batches."""
    found = dict(loss_sums(plan.objective, traced))
    with builder.tracer.scope("metrics"):
        found |= metric_sums(metrics, builder.predictions, builder.batch)
    return found


def _losses(builder: GraphBuilder, plan: Plan) -> list[TracedTerm]:
    with builder.tracer.scope("loss"):
        return plan.objective.trace(builder.predictions, builder.batch)


def _passes(builder: GraphBuilder, plan: Plan, tangents: Mapping[str, Array], *, updating: bool) -> Passes:
    """Forward and backward in training mode; reports loss and metrics, and keeps what the forward pass changes.

    Returns:
        What there is then: the gradient of every trainable parameter (zero for one that the loss does not depend on),
        of the mean loss if `updating` follows and of the sums of each share otherwise, the weights between them, and
        more.
    """
    traced = _losses(builder, plan)
    shares = plan.objective.by_share(traced)
    sums = _sums(builder, plan, traced, plan.trained_metrics)
    parameters = {name: builder.state(name) for name in plan.trainable}
    layers = Layers(builder, plan)
    alone = len(shares) == 1
    seeds = [inverse_weight(each.weight, alone=alone) if updating else xp.ones_like(each.total) for each in shares]
    if plan.recompute or builder.has_regions:
        seeds[0] = builder.drop_activations(seeds[0], plan.recompute)
    wrt = [*(array.value for array in parameters.values()), *layers.outputs]
    found = _gradients(builder, shares, seeds, wrt, together=updating)
    _report(builder, plan, traced, sums, updating=updating)
    for name, value in builder.updated_buffers.items():
        builder.set_state(name, value)
    for name, value in builder.updated_parameters.items():
        # An update that follows begins with the written value, and writes the parameter itself.
        if not updating or name not in plan.trainable:
            builder.set_state(name, value)
    first, weight = found[0], shares[0].weight
    return Passes(
        builder=builder,
        plan=plan,
        total=shares[0].total,
        weight=weight,
        gradients=dict(zip(parameters, first, strict=False)),
        further=[(dict(zip(parameters, each, strict=False)), shares[n].weight) for n, each in enumerate(found) if n],
        layers=layers,
        cotangents=dict(zip(layers.outputs, first[len(parameters) :], strict=True)),
        scale=weight if updating else xp.ones_like(weight),
        tangents=tangents,
    )


def _gradients(
    builder: GraphBuilder,
    shares: Sequence[ShareSum],
    seeds: Sequence[Array],
    wrt: Sequence[ir.Value],
    *,
    together: bool,
) -> list[list[Array]]:
    """The cotangents of some tensors, of all shares together or of each by itself."""
    passes = (
        [list(zip(shares, seeds, strict=True))] if together else [[pair] for pair in zip(shares, seeds, strict=True)]
    )
    results = []
    for pairs in passes:
        found = backward(builder.tracer, {share.total.value: seed for share, seed in pairs}, wrt)
        results.append(
            [
                xp.zeros_like(builder.tracer.wrap(value)) if cotangent is None else cotangent
                for value, cotangent in zip(wrt, found, strict=True)
            ]
        )
    return results


def _report(
    builder: GraphBuilder, plan: Plan, traced: Sequence[TracedTerm], sums: Mapping[str, Array], *, updating: bool
) -> None:
    """The numbers of this batch, and the sums that they are made of."""
    weights = [weight for _, _, weight in traced]
    weight = sum(weights[1:], start=weights[0])
    # Of a microbatch that weighs nothing (padding only) the loss is its sum, which is zero as well.
    empty = None if updating else 0.0
    numbers = loss_numbers(plan.objective, sums, empty=empty)
    builder.metric(LOSS, numbers.pop(LOSS), weight)
    arrays = []
    with builder.tracer.scope("metrics"):
        for name, value in numbers.items():
            builder.metric(name, value)
        for each in plan.trained_metrics:
            found = {name: value for name, value in metric_numbers([each], sums, empty=empty) if not value.ndim}
            for name, value in found.items():
                builder.metric(name, value)
            if not found:
                arrays.append(f"{each.metric.reported}.")
    # A step does not compute what evaluation alone reports.
    builder.sums({name: value for name, value in sums.items() if not name.startswith(tuple(arrays))})


def _step(model: ForwardModel, plan: Plan, state: State) -> BuiltGraph:
    """(state, batch, hyper) → (state', loss, metrics)."""
    builder = GraphBuilder("step", state, model.train)
    tangents = draw_tangents(builder, plan.groups)
    passes = _passes(builder, plan, tangents, updating=True)
    measurements = measured(builder, plan, measured_sums(passes), passes.weight)
    add_update(builder, plan, passes.gradients, {**measurements, **tangents})
    return builder.finish()


def _accumulate(model: ForwardModel, plan: Plan, state: State) -> BuiltGraph:
    """(params, buffers, accumulators, batch) → (accumulators', buffers', loss): one microbatch."""
    builder = GraphBuilder("accumulate", state, model.train)
    passes = _passes(builder, plan, draw_tangents(builder, plan.groups), updating=False)
    sums = measured_sums(passes)
    for share, (gradients, weight) in enumerate([(passes.gradients, passes.weight), *passes.further]):
        add_gradients(builder, plan.units, gradients, share)
        add_weight(builder, weight, share)
    for key, value in sums.items():
        accumulator = builder.state(key)
        builder.set_state(key, accumulator + xp.astype(value, accumulator.dtype))
    return builder.finish()


def _hessian_vector(model: ForwardModel, plan: Plan, state: State) -> BuiltGraph:
    """(params, buffers, accumulators, batch, vector) → accumulators': adds H v, H the Hessian of the loss sum.

    The vector-Jacobian product of the gradient with v is Hᵀ v, and H is symmetric. The forward pass is that of
    `accumulate`, with the same random numbers, but the buffers stay as they are.
    """
    builder = GraphBuilder("hessian_vector", state, model.train)
    shares = plan.objective.by_share(_losses(builder, plan))
    parameters = {name: builder.state(name) for name in plan.trainable}
    values = [array.value for array in parameters.values()]
    for share, (total, weight) in enumerate(shares):
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
        add_gradients(builder, plan.units, products, share)
        add_weight(builder, weight, share)
    return builder.finish()


def _apply(model: ForwardModel, plan: Plan, state: State) -> BuiltGraph:
    """(state, accumulators, hyper) → state': the update alone."""
    builder = GraphBuilder("apply", state)
    weight = builder.state(ACCUMULATED_WEIGHT)
    gradients = mean_gradients(builder, plan.units)
    measurements = measured(builder, plan, accumulated_sums(builder, plan), weight)
    add_update(builder, plan, gradients, {**measurements, **draw_tangents(builder, plan.groups)})
    return builder.finish()


def _evaluate(model: ForwardModel, plan: Plan, state: State) -> BuiltGraph:
    """(params, batch) → the sums of loss and metrics; dropout off, running statistics."""
    builder = GraphBuilder("evaluate", state, model.evaluate)
    look_through(builder, plan.groups)
    builder.sums(_sums(builder, plan, _losses(builder, plan), plan.metrics))
    return builder.finish()


def _summary(model: ForwardModel, plan: Plan, state: State) -> BuiltGraph:
    """(sums over batches) → loss and metrics."""
    # What the sums are shows when they are made, of anything.
    maker = GraphBuilder("sums", state)
    maker.predictions = stand_ins(maker.tracer, model.evaluate)
    made = _sums(maker, plan, _losses(maker, plan), plan.metrics)
    builder = GraphBuilder("summary", state)
    sums = {name: builder.sum(name, array.shape) for name, array in made.items()}
    for name, value in loss_numbers(plan.objective, sums, empty=None).items():
        builder.metric(name, value)
    for name, value in metric_numbers(plan.metrics, sums):
        builder.metric(name, value)
    return builder.finish()


def stand_ins(tracer: Tracer, graph: ForwardGraph) -> dict[str, Array]:
    """Inputs like the outputs of a model."""
    return {name: tracer.argument(name, spec.dtype, spec.shape) for name, spec in graph.specs(graph.outputs).items()}


def _predict(model: ForwardModel, plan: Plan, state: State) -> BuiltGraph:
    """(params, batch) → outputs."""
    builder = GraphBuilder("predict", state, model.for_prediction(model.evaluate))
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


def _reset(model: ForwardModel, plan: Plan, state: State) -> BuiltGraph:
    return reset_graph(state, plan.groups, model.parameters)


def _view(model: ForwardModel, plan: Plan, state: State) -> BuiltGraph:
    return view_graph(state, plan.groups)


def _merge(model: ForwardModel, plan: Plan, state: State) -> BuiltGraph | None:
    """(params) → the weights with which the plain model gives what this one gives with its adapters."""
    if model.merging is None:
        return None
    builder = GraphBuilder("merge", state, model.merging.merge)
    look_through(builder, plan.groups)
    for name, value in builder.predictions.items():
        builder.merged(name, value)
    return builder.finish()


def _predict_merged(model: ForwardModel, plan: Plan, state: State) -> BuiltGraph | None:
    """(params, merged weights, batch) → outputs, without adapters."""
    if model.merging is None:
        return None
    plain = model.for_prediction(model.merging.plain)
    builder = GraphBuilder("predict_merged", state, plain, merged=model.merging.places)
    look_through(builder, plan.groups)
    for name in model.predicted:
        builder.output(name, builder.predictions[name])
    return builder.finish()


SIGNATURES: dict[str, Callable[[ForwardModel, Plan, State], BuiltGraph | None]] = {
    "step": _step,
    "accumulate": _accumulate,
    "apply": _apply,
    "evaluate": _evaluate,
    "summary": _summary,
    "predict": _predict,
    "reset": _reset,
    "view": _view,
    "merge": _merge,
    "predict_merged": _predict_merged,
    "hessian_vector": _hessian_vector,
}
# Built when asked for.
OPTIONAL = ("hessian_vector",)
