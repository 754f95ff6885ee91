"""The graphs of a bundle with another optimizer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.errors import SignatureError
from edgeopt.tracing import Array
from edgeopt.training.graphs.accumulation import add_gradients, mean_gradients
from edgeopt.training.graphs.builder import BuiltGraph, GraphBuilder
from edgeopt.training.surgery.cut import Cut
from edgeopt.training.surgery.leave_out import leave_out
from edgeopt.training.updating.groups import UpdateGroup
from edgeopt.training.updating.state import State
from edgeopt.training.updating.units import Unit
from edgeopt.training.updating.update import update_groups
from edgeopt.training.updating.view import look_through
from edgeopt_runtime.manifest import Joined, TensorSpec

__all__ = ["rebuild"]


def rebuild(cut: Cut, state: State, groups: Sequence[UpdateGroup]) -> BuiltGraph:
    """The graph with the new optimizer; as it was, byte for byte, if that has no part in it.

    Args:
        cut: The graph, which is used up.
        state: The new tensors.
        groups: The new rules and their parameters, which are those that are trained from now on.

    Raises:
        SignatureError: A transform cannot do without the parameters that are no longer trained, or the old optimizer
            got along without gradients, so that there are none.
    """
    if cut.updates:
        return _with_updates(cut, state, groups)
    if cut.name in ("evaluate", "predict"):
        return _with_views(cut, state, groups)
    return _with_sums(cut, state, groups)


def _with_views(cut: Cut, state: State, groups: Sequence[UpdateGroup]) -> BuiltGraph:
    views, inputs = cut.views, {value.name: value for value in cut.model.graph.inputs}
    for name, view in views.items():
        if name not in inputs:
            # An average stands for it wherever it is used.
            inputs[name] = ir.Value(name=name)
            cut.describe(inputs[name], name)
            cut.model.graph.inputs.append(inputs[name])
        view.replace_all_uses_with(inputs[name])
    builder = GraphBuilder.reopen(cut.name, state, cut.signature, cut.model, cut.signature.outputs)
    if look_through(builder, groups) or views:
        return builder.finish()
    return BuiltGraph(cut.signature, cut.content)


def _with_sums(cut: Cut, state: State, groups: Sequence[UpdateGroup]) -> BuiltGraph:
    """The sums for what is trained, in accumulators that lie as the new rules read them."""
    if _layout(cut.manifest.accumulators, cut.manifest.joined) == _layout(
        state.accumulators.values(), state.joined.values()
    ):
        return BuiltGraph(cut.signature, cut.content)
    units = [unit for group in groups for unit in group.units]
    trained = {name: shape for unit in units for name, shape in unit.members.items()}
    found = {name: value for name, value in cut.sums().items() if name in trained}
    _hold_still(cut, trained)
    cut.model.graph.outputs.extend(dict.fromkeys(found.values()))
    keep = cut.without(cut.sum_ports() | cut.update_ports() | cut.share_ports(but_of=trained))
    builder = GraphBuilder.reopen(cut.name, state, cut.signature, cut.model, keep)
    sums = {name: builder.tracer.wrap(value) for name, value in found.items()}
    for unit in units:
        if not unit.joined and sums[unit.name].ndim != len(trained[unit.name]):
            sums[unit.name] = xp.reshape(sums[unit.name], trained[unit.name])
    add_gradients(builder, units, sums)
    return builder.finish()


def _layout(accumulators: Iterable[TensorSpec], joined: Iterable[Joined]) -> tuple[set[TensorSpec], set[Joined]]:
    """What lies where, in no order."""
    specs = set(accumulators)
    names = {spec.name for spec in specs}
    return specs, {entry for entry in joined if entry.members[0] in names}


def _hold_still(cut: Cut, trained: Collection[str]) -> None:
    """Put zeros in the place of the directions in which parameters may no longer move."""
    for port in cut.signature.inputs:
        if port.tensor is not None and port.tensor not in trained:
            vector = next(value for value in cut.model.graph.inputs if value.name == port.name)
            shape = ir.AttrTensor("value", ir.tensor(np.asarray(cut.parameters[port.tensor].shape, np.int64)))
            target = ir.Node("", "Constant", [], [shape], num_outputs=1)
            dtype = np.dtype(cut.parameters[port.tensor].dtype)
            zero = ir.AttrTensor("value", ir.tensor(np.zeros(1, dtype)))
            zeros = ir.Node("", "ConstantOfShape", target.outputs, [zero], num_outputs=1)
            cut.describe(zeros.outputs[0], port.tensor)
            cut.model.graph.insert_before(cut.model.graph[0], (target, zeros))
            vector.replace_all_uses_with(zeros.outputs[0])


def _with_updates(cut: Cut, state: State, groups: Sequence[UpdateGroup]) -> BuiltGraph:
    units = [unit for group in groups for unit in group.units]
    trained = {name for unit in units for name in unit.members}
    leave_out(cut, cut.rules().keys() - trained)
    # Of `apply` what stands before the transforms is made anew, since the accumulators may lie in another way.
    raw = _detached(cut) if cut.name == "apply" else {}
    values = cut.gradients() if raw or cut.name != "apply" else {}
    values = {name: value for name, value in values.items() if name in trained}
    if cut.name == "step" and (missing := sorted(trained - values.keys())):
        raise SignatureError(
            f"{cut.signature.file} computes no gradient of {', '.join(missing)}, since its optimizer has no use for "
            "it; export the model anew."
        )
    for name, value in values.items():
        cut.describe(value, name)
    written = cut.written()
    for name, value in written.items():
        cut.describe(value, name)
    cut.model.graph.outputs.extend(dict.fromkeys([*values.values(), *written.values()]))
    keep = cut.without(cut.sum_ports() | cut.update_ports())
    builder = GraphBuilder.reopen(cut.name, state, cut.signature, cut.model, keep)
    builder.updated_parameters = {name: builder.tracer.wrap(value) for name, value in written.items()}
    gradients = {name: builder.tracer.wrap(value) for name, value in values.items()}
    if cut.name == "apply":
        means = mean_gradients(builder, units)
        gradients = _through(builder, units, means, raw, gradients) if raw else means
    update_groups(builder, groups, gradients, {})
    for name in [name for name in written if name not in trained]:
        builder.set_state(name, builder.parameter(name))
    return builder.finish()


def _detached(cut: Cut) -> dict[str, ir.Value]:
    """What the first transform gets for each parameter, in the place of what came from the accumulators."""
    raw: dict[str, ir.Value] = {}
    for call in cut.transforms[:1]:
        for position, value in enumerate(call.function.inputs):
            if (value.name or "").startswith("grad."):
                name = (value.name or "").removeprefix("grad.")
                raw[name] = ir.Value(name=f"mean.{name}")
                cut.describe(raw[name], name)
                call.node.replace_input_with(position, raw[name])
    return raw


def _through(
    builder: GraphBuilder,
    units: Sequence[Unit],
    means: Mapping[str, Array],
    raw: Mapping[str, ir.Value],
    transformed: Mapping[str, Array],
) -> dict[str, Array]:
    """Give the transforms what they wait for, and return what comes out."""
    for unit in units:
        parts = unit.split(means[unit.name]) if unit.joined else {unit.name: means[unit.name]}
        for name, part in parts.items():
            if name in raw:
                raw[name].replace_all_uses_with(part.value)
    builder.graph.sort()
    return dict(transformed)
