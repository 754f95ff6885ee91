"""From gradients to the next state: schedules, transforms, update rules."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgeopt import tracing as xp
from edgeopt.tracing import Array
from edgeopt.training.builder import GraphBuilder
from edgeopt.training.fused import static_flags
from edgeopt.training.groups import UpdateGroup
from edgeopt.training.noise import draw
from edgeopt.training.plan import Plan
from edgeopt.training.state import STEP, slot_name

__all__ = ["add_update", "hyper_inputs"]


def add_update(
    builder: GraphBuilder,
    plan: Plan,
    gradients: Mapping[str, Array],
    curvature: Mapping[tuple[str, str], Array],
) -> None:
    """Add the update of every trainable parameter, its optimizer state and the step counter.

    Reports the learning rate as `lr`, that of a group with another schedule as `lr_NAME`, and what the transforms
    report.

    Args:
        builder: The graph.
        plan: The settings.
        gradients: The gradient of each trainable parameter.
        curvature: By parameter and name, what the rules need of it.
    """
    completed = builder.state(STEP)
    step = completed + np.int64(1)
    parameters = {name: builder.state(name) for name in gradients}
    transformed = dict(gradients)
    for position in range(len(plan.transforms)):
        transformed = _apply_transform(builder, plan, position, parameters, transformed, step)
    reported: dict[tuple[str, ...], str] = {}
    for group in plan.groups:
        hyper = hyper_inputs(builder, group, completed)
        _update_group(builder, group, transformed, curvature, hyper, step)
        numbers = tuple(group.schedule.values())
        # Groups with one schedule have one rate, and factors of it.
        if numbers not in reported:
            reported[numbers] = f"lr_{group.name}" if reported else "lr"
            builder.metric(reported[numbers], _rate(builder, group, completed))
    builder.set_state(STEP, step)


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


def _rate(builder: GraphBuilder, group: UpdateGroup, completed: Array) -> Array:
    """What the schedule says."""
    numbers = {name: builder.hyper(full) for name, full in group.schedule.items()}
    with builder.tracer.scope("schedule"):
        rate: Array = group.rule.schedule(xp, numbers, completed)
    return rate


def hyper_inputs(builder: GraphBuilder, group: UpdateGroup, completed: Array) -> dict[str, Array]:
    """What a rule gets as `hyper`: its own numbers, and the learning rate after so many completed updates."""
    lr = _rate(builder, group, completed)
    if group.multiplier is not None:
        lr = lr * builder.hyper(group.multiplier)
    return {"lr": lr, **{name: builder.hyper(full) for name, full in group.hyperparameters.items()}}


def _update_group(
    builder: GraphBuilder,
    group: UpdateGroup,
    gradients: Mapping[str, Array],
    curvature: Mapping[tuple[str, str], Array],
    hyper: Mapping[str, Array],
    step: Array,
) -> None:
    """One function for the whole group, so that a native kernel can update it in one pass."""
    rule = group.rule
    inputs = {"step": step, **hyper}
    for slot in group.shared:
        inputs[f"shared.{slot}"] = builder.state(group.shared_name(slot))
    for name, slots in group.slots.items():
        parameter = builder.state(name)
        inputs[f"param.{name}"], inputs[f"grad.{name}"] = parameter, gradients[name]
        for slot in slots:
            inputs[f"{slot}.{name}"] = builder.state(slot_name(slot, name))
        for key, ingredient in group.ingredients[name].items():
            known = curvature.get((name, key))
            inputs[f"{key}.{name}"] = draw(ingredient, parameter) if known is None else known

    def body(x: dict[str, Array]) -> dict[str, Array]:
        params = {name: x[f"param.{name}"] for name in group.members}
        grads = {name: x[f"grad.{name}"] for name in group.members}
        states = {
            name: {key: x[f"{key}.{name}"] for key in (*slots, *group.ingredients[name])}
            for name, slots in group.slots.items()
        }
        shared = {slot: x[f"shared.{slot}"] for slot in group.shared}
        own = {key: x[key] for key in hyper}
        moved, states, shared = rule.update_all(xp, params, grads, states, shared, own, x["step"])
        results = {f"param.{name}": value for name, value in moved.items()}
        results |= {f"{slot}.{name}": value for name, slots in states.items() for slot, value in slots.items()}
        results |= {f"shared.{slot}": value for slot, value in shared.items()}
        # A slot that comes out as it went in needs no output: what no graph writes stays.
        return {f"updated.{key}": value for key, value in results.items() if value is not x[key]}

    results = builder.functions.call(builder.tracer, type(rule).__name__, inputs, body, static_flags(rule))
    targets = {f"updated.param.{name}": name for name in group.members}
    targets |= {f"updated.{s}.{name}": slot_name(s, name) for name, slots in group.slots.items() for s in slots}
    targets |= {f"updated.shared.{slot}": group.shared_name(slot) for slot in group.shared}
    for key, tensor in targets.items():
        if key in results:
            builder.set_state(tensor, results[key])
