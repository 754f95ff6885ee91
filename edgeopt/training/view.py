"""Evaluation and prediction with what the optimizer says stands for a parameter: an average, for instance."""

from __future__ import annotations

from edgeopt import tracing as xp
from edgeopt.tracing import Array
from edgeopt.training.builder import GraphBuilder
from edgeopt.training.fused import static_flags
from edgeopt.training.groups import UpdateGroup
from edgeopt.training.plan import Plan
from edgeopt.training.state import STEP, slot_name
from edgeopt.training.update import hyper_inputs

__all__ = ["look_through"]


def look_through(builder: GraphBuilder, plan: Plan) -> None:
    """Put the rules' views of the parameters in the parameters' place, in a forward graph that is not built upon yet.

    A rule without a view of its own leaves the graph as it is.
    """
    for group in plan.groups:
        for name, view in _views(builder, group).items():
            builder.substitute(builder.state(name), view)


def _views(builder: GraphBuilder, group: UpdateGroup) -> dict[str, Array]:
    """One function for the group; only the parameters that have a view of their own."""
    rule = group.rule
    members = [name for name in group.members if builder.reads(name)]
    completed = builder.state(STEP)
    hyper = hyper_inputs(builder, group, completed)
    inputs = {"step": completed, **hyper}
    for name in members:
        inputs[f"param.{name}"] = builder.state(name)
        inputs |= {f"{slot}.{name}": builder.state(slot_name(slot, name)) for slot in group.slots[name]}

    def body(x: dict[str, Array]) -> dict[str, Array]:
        own = {key: x[key] for key in hyper}
        results = {}
        for name in members:
            state = {slot: x[f"{slot}.{name}"] for slot in group.slots[name]}
            view = rule.view(xp, x[f"param.{name}"], state, own, x["step"])
            if view is not x[f"param.{name}"]:
                results[f"view.{name}"] = view
        return results

    name = f"{type(rule).__name__}View"
    results = builder.functions.call(builder.tracer, name, inputs, body, static_flags(rule))
    return {key.removeprefix("view."): value for key, value in results.items()}
