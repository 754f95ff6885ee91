"""From gradients to the next state: schedule, transforms, update rule."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgeopt import tracing as xp
from edgeopt.tracing import Array
from edgeopt.training.builder import GraphBuilder
from edgeopt.training.fused import static_flags
from edgeopt.training.plan import Plan
from edgeopt.training.state import STEP, slot_name

__all__ = ["add_update"]


def add_update(builder: GraphBuilder, plan: Plan, gradients: Mapping[str, Array]) -> None:
    """Add the update of every trainable parameter, its optimizer state and the step counter.

    Reports the learning rate as `lr`, and what the transforms report.

    Args:
        builder: The graph.
        plan: The settings.
        gradients: The gradient of each trainable parameter.
    """
    completed = builder.state(STEP)
    step = completed + np.int64(1)
    parameters = {name: builder.state(name) for name in gradients}
    schedule_hyper = {name: builder.hyper(f"schedule.{name}") for name in plan.optimizer.schedule.hyperparameters()}
    with builder.tracer.scope("schedule"):
        lr = plan.optimizer.schedule(xp, schedule_hyper, completed)

    transformed = dict(gradients)
    for position in range(len(plan.transforms)):
        transformed = _apply_transform(builder, plan, position, parameters, transformed, step)
    _apply_optimizer(builder, plan, parameters, transformed, lr, step)
    builder.set_state(STEP, step)
    builder.metric("lr", lr)


def _apply_transform(
    builder: GraphBuilder,
    plan: Plan,
    position: int,
    parameters: Mapping[str, Array],
    gradients: Mapping[str, Array],
    step: Array,
) -> dict[str, Array]:
    transform, owner = plan.transforms[position], plan.transform_name(position)
    names = list(gradients)
    hyper = {name: builder.hyper(f"{owner}.{name}") for name in transform.hyperparameters()}
    reported: list[str] = []

    def body(x: dict[str, Array]) -> dict[str, Array]:
        grads = [x[f"grad.{name}"] for name in names]
        params = [x[f"param.{name}"] for name in names]
        new, metrics = transform(xp, grads, params, {key: x[key] for key in hyper}, x["step"])
        reported.extend(metrics)
        return {**{f"next.{name}": grad for name, grad in zip(names, new, strict=True)}, **metrics}

    inputs = {
        "step": step,
        **hyper,
        **{f"param.{name}": parameters[name] for name in names},
        **{f"grad.{name}": gradients[name] for name in names},
    }
    results = builder.functions.call(builder.tracer, type(transform).__name__, inputs, body, static_flags(transform))
    for metric in reported:
        suffix = owner.removeprefix(owner.rstrip("0123456789"))
        builder.metric(f"{metric}_{suffix}" if suffix else metric, results[metric])
    return {name: results[f"next.{name}"] for name in names}


def _apply_optimizer(
    builder: GraphBuilder,
    plan: Plan,
    parameters: Mapping[str, Array],
    gradients: Mapping[str, Array],
    lr: Array,
    step: Array,
) -> None:
    """One function for the whole group, so that a native kernel can update it in one pass."""
    optimizer = plan.optimizer
    hyper = {"lr": lr, **{name: builder.hyper(f"optimizer.{name}") for name in optimizer.hyperparameters()}}
    inputs = {"step": step, **hyper}
    for name, parameter in parameters.items():
        inputs[f"param.{name}"] = parameter
        inputs[f"grad.{name}"] = gradients[name]
        for slot in optimizer.slots():
            inputs[f"{slot}.{name}"] = builder.state(slot_name(slot, name))

    def body(x: dict[str, Array]) -> dict[str, Array]:
        results: dict[str, Array] = {}
        for name in parameters:
            state = {slot: x[f"{slot}.{name}"] for slot in optimizer.slots()}
            param, grad = x[f"param.{name}"], x[f"grad.{name}"]
            new, slots = optimizer.update(xp, param, grad, state, {key: x[key] for key in hyper}, x["step"])
            results[f"next.param.{name}"] = new
            results.update({f"next.{slot}.{name}": value for slot, value in slots.items()})
        return results

    results = builder.functions.call(builder.tracer, type(optimizer).__name__, inputs, body, static_flags(optimizer))
    for name in parameters:
        builder.set_state(name, results[f"next.param.{name}"])
        for slot in optimizer.slots():
            builder.set_state(slot_name(slot, name), results[f"next.{slot}.{name}"])
