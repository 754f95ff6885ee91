"""From gradients to the next state: schedules, transforms, update rules."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from edgeopt import tracing as xp
from edgeopt.optimizers import GroupArrays, Ingredient, Measurement, Tangents
from edgeopt.tracing import Array, op
from edgeopt.training.graphs.builder import GraphBuilder
from edgeopt.training.graphs.finiteness import finite_check
from edgeopt.training.graphs.noise import draw
from edgeopt.training.names import SCHEDULE_START, STEP, measurement_name, slot_name
from edgeopt.training.plan import Plan
from edgeopt.training.updating.blocks import block_of, update_in_blocks
from edgeopt.training.updating.fused import static_flags
from edgeopt.training.updating.groups import UpdateGroup
from edgeopt.training.updating.unit_arrays import state_inputs, unit_states
from edgeopt.training.updating.units import Unit
from edgeopt.transforms import Transform

__all__ = ["add_update", "hyper_inputs", "run_transform", "update_groups"]

T = TypeVar("T")


def add_update(
    builder: GraphBuilder,
    plan: Plan,
    gradients: Mapping[str, Array],
    given: Mapping[str, Array],
) -> None:
    """Add the update of every trainable parameter, its optimizer state and the step counter.

    Reports the learning rate as `lr`, that of a group with another schedule as `lr_NAME`, and what the transforms
    report.

    Args:
        builder: The graph.
        plan: The settings.
        gradients: The gradient of each trainable parameter, or of each joined unit as one vector.
        given: By key, what the rules need beside gradients: measurements and `tangents`.
    """
    step = builder.state(STEP) + np.int64(1)
    transformed = dict(gradients)
    if plan.transforms:
        for unit in [unit for group in plan.groups for unit in group.units if unit.name in transformed]:
            transformed |= unit.split(transformed.pop(unit.name)) if unit.joined else {}
    for position in range(len(plan.transforms)):
        parameters = {name: builder.parameter(name) for name in transformed}
        transformed = _apply_transform(builder, plan, position, parameters, transformed, step)
    update_groups(builder, plan.groups, transformed, given)


def update_groups(
    builder: GraphBuilder,
    groups: Sequence[UpdateGroup],
    gradients: Mapping[str, Array],
    given: Mapping[str, Array],
) -> None:
    """Add the updates by themselves, given gradients as the rules get them; args are those of `add_update`."""
    completed = builder.state(STEP)
    step = completed + np.int64(1)
    reported: dict[tuple[str, ...], str] = {}
    for group in groups:
        hyper = hyper_inputs(builder, group, completed)
        _update_group(builder, group, gradients, given, hyper, step)
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
        new, metrics = run_transform(transform, names, x)
        reported.extend(metrics)
        return {**new, **metrics}

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


def run_transform(
    transform: Transform, names: Sequence[str], x: Mapping[str, Array]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The body of a transform's function, for these parameters: `next.NAME` of each, and the metrics."""
    grads, params = ([x[f"{kind}.{name}"] for name in names] for kind in ("grad", "param"))
    new, metrics = transform(xp, grads, params, {key: x[key] for key in transform.hyperparameters()}, x["step"])
    return {f"next.{name}": grad for name, grad in zip(names, new, strict=True)}, metrics


def _rate(builder: GraphBuilder, group: UpdateGroup, completed: Array) -> Array:
    """What the schedule says."""
    numbers = {name: builder.hyper(full) for name, full in group.schedule.items()}
    with builder.tracer.scope("schedule"):
        rate: Array = group.rule.schedule(xp, numbers, completed - builder.state(SCHEDULE_START))
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
    given: Mapping[str, Array],
    hyper: Mapping[str, Array],
    step: Array,
) -> None:
    """One function for the whole group, so that a native kernel can update it in one pass."""
    rule = group.rule
    inputs = {"step": step, **hyper, **state_inputs(builder, group, group.units)}
    for slot in group.shared:
        inputs[f"shared.{slot}"] = builder.state(group.shared_name(slot))
    for key in group.shared_ingredients:
        inputs[f"shared.{key}"] = given[measurement_name(key, group.name)]
    for unit in group.units:
        inputs |= {f"grad.{name}": gradients[name] for name in (unit.name, *unit.members) if name in gradients}
        for name in unit.members:
            needed = {key: measurement_name(key, name) for key in group.needs(unit)}
            inputs |= {f"{key}.{name}": given[full] for key, full in needed.items() if full in given}
        inputs |= {f"{key}.{unit.name}": value for key, value in _noise(builder, group, unit).items()}

    def body(x: dict[str, Array]) -> dict[str, Array]:
        params, states = unit_states(group, group.units, x)
        grads = {unit.name: unit.gather(x, "grad.") for unit in group.units}
        for unit in group.units:
            states[unit.name] |= {key: unit.gather(x, f"{key}.") for key in group.needs(unit)}
        shared = {slot: x[f"shared.{slot}"] for slot in (*group.shared, *group.shared_ingredients)}
        own = {key: x[key] for key in hyper}
        blocks = {
            unit.name: block
            for unit in group.units
            if not unit.joined and (block := block_of(rule, params[unit.name], states[unit.name], group.block_size))
        }
        whole = GroupArrays(_without(blocks, params), _without(blocks, grads), _without(blocks, states), shared)
        moved, slots, shared = rule.update_all(xp, whole, own, x["step"])
        checks, known = [], set()
        for name, block in blocks.items():
            check = partial(_slot_to_check, builder, name)
            arrays = params[name], grads[name], states[name]
            found = update_in_blocks(rule, arrays, own, x["step"], block=block, to_check=check)
            moved[name], slots[name] = found.param, found.slots
            if found.check is not None:
                checks.append(found.check)
                known |= {f"updated.{key}.{name}" for key in ("param", *found.changed)}
        results = {f"shared.{slot}": value for slot, value in shared.items()}
        for unit in group.units:
            results |= {f"{slot}.{unit.name}": value for slot, value in slots[unit.name].items()}
            parts = unit.split(moved[unit.name]) if unit.joined else {unit.name: moved[unit.name]}
            results |= {f"param.{name}": part for name, part in parts.items()}
        # A slot that comes out as it went in needs no output: what no graph writes stays.
        written = {f"updated.{key}": value for key, value in results.items() if value is not x.get(key)}
        rest = {key: value for key, value in written.items() if key not in known}
        checked = finite_check(_to_check(builder, group, rest, moved))
        checks += [] if checked is None else [checked]
        return {**written, "updated.check": sum(checks[1:], start=checks[0])} if checks else written

    results = builder.functions.call(builder.tracer, type(rule).__name__, inputs, body, static_flags(rule))
    targets = _targets(group)
    if "updated.check" in results:
        # Within the function, so that a native kernel finds out on its way.
        check = results.pop("updated.check")
        builder.checked([name for key in results for name in targets[key]], check)
    for key, tensors in targets.items():
        for tensor in tensors if key in results else ():
            builder.set_state(tensor, results[key])
    for name in [name for name in group.members if f"updated.param.{name}" not in results]:
        if name in builder.updated_parameters:
            # The rule leaves it as the model has written it.
            builder.set_state(name, builder.parameter(name))


def _without(names: Collection[str], values: Mapping[str, T]) -> dict[str, T]:
    return {name: value for name, value in values.items() if name not in names}


def _slot_to_check(builder: GraphBuilder, parameter: str, slot: str | None, value: Array) -> Array:
    """What of the next value of a slot, or of the parameter for None, has to be finite."""
    return builder.to_check([parameter if slot is None else slot_name(slot, parameter)], value)


def _to_check(
    builder: GraphBuilder, group: UpdateGroup, written: Mapping[str, Array], moved: Mapping[str, Array]
) -> Iterator[Array]:
    """What an update writes, each joined vector in one piece."""
    targets = _targets(group)
    whole = {f"updated.param.{name}": unit for unit in group.units if unit.joined for name in unit.members}
    for key, value in written.items():
        if key in whole:
            yield builder.to_check(whole[key].members, moved[whole[key].name])
        else:
            yield builder.to_check(targets[key], value)


def _targets(group: UpdateGroup) -> dict[str, list[str]]:
    """The state tensors that each result of the function becomes."""
    targets = {f"updated.shared.{slot}": [group.shared_name(slot)] for slot in group.shared}
    for unit in group.units:
        targets |= {f"updated.param.{name}": [name] for name in unit.members}
        for slot in group.slots[next(iter(unit.members))]:
            alike = unit.joined and slot in unit.scalars
            tensors = [slot_name(slot, name) for name in unit.members] if alike else [group.slot_name(slot, unit)]
            targets[f"updated.{slot}.{unit.name}"] = tensors
    return targets


def _is_private(need: Ingredient) -> bool:
    """Whether nothing but the update sees it."""
    return not isinstance(need, (Measurement, Tangents))


def _noise(builder: GraphBuilder, group: UpdateGroup, unit: Unit) -> dict[str, Array]:
    """Random numbers for all members at once."""
    first, *_ = unit.members
    needed = {key: need for key, need in group.ingredients[first].items() if _is_private(need)}
    if not needed:
        return {}
    like = builder.state(first)
    if unit.joined:
        size = sum(math.prod(shape) for shape in unit.members.values())
        like = op.Expand(builder.tracer.constant(np.zeros((), like.dtype)), np.asarray([size], np.int64))
    return {key: draw(need, like) for key, need in needed.items()}
