"""Another optimizer for a bundle, without the model it was exported from.

Only the update of `step` and `apply`, and the views of `evaluate` and `predict`, depend on the optimizer. They are
calls of functions in the domain `edgeopt`, so they can be cut out of the finished graphs: what they get as gradients,
after all transforms, the new update gets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from edgeopt.bundle import Bundle
from edgeopt.errors import SignatureError
from edgeopt.optimizers import OptimizerLike, as_groups
from edgeopt.tracing import DOMAIN, Array
from edgeopt.training.builder import BuiltGraph, GraphBuilder
from edgeopt.training.carry import OldRule, carry_over
from edgeopt.training.groups import UpdateGroup, resolve
from edgeopt.training.names import DRAWS, SEED, STEP, accumulator_name
from edgeopt.training.plan import group_numbers, group_provenance
from edgeopt.training.state import State, initial_state
from edgeopt.training.units import Unit
from edgeopt.training.update import update_groups
from edgeopt.training.view import look_through
from edgeopt_runtime.manifest import GraphOutput, Manifest, Signature

__all__ = ["Replacement", "replace_optimizer"]

NumpyArray = np.ndarray[Any, Any]


class Replacement(NamedTuple):
    """A bundle with another optimizer, and what became of the old one's state.

    Attributes:
        bundle: The new bundle.
        kept: New tensors that go on, with the old ones that they come from; `optimizer.step` is among them if updates
            are counted on, which the schedule of the learning rate follows too.
        started: New tensors that begin anew.
        dropped: Old tensors that nothing takes over.
    """

    bundle: Bundle
    kept: Mapping[str, str]
    started: tuple[str, ...]
    dropped: tuple[str, ...]


def replace_optimizer(bundle: Bundle, optimizer: OptimizerLike) -> Replacement:
    """Give a bundle another optimizer; weights, buffers, transforms, losses and metrics stay.

    Slots go on where they mean the same to both optimizers: averages of gradients and of their squares among the Adam
    family, Lion, SGD with momentum (which sums gradients, so that its buffer is scaled) and others, and everything
    among rules of one class. A rule that corrects the bias of its averages takes all of them over or none.

    Args:
        bundle: The bundle; it stays as it is.
        optimizer: As in `compose`.

    Raises:
        SignatureError: The new optimizer freezes parameters, or needs curvature: both take a new export.
        ParameterPatternError: See `compose`.
    """
    manifest, state = bundle.manifest, _decoded(bundle)
    trained = {spec.name: state[spec.name] for spec in manifest.tensors if spec.trainable}
    groups = resolve(as_groups(optimizer), trained)
    _refuse(groups, trained)
    laid_out = _layout(manifest, groups, state)
    graphs = {name: _Cut(manifest, name, bundle.contents().graphs[s.file]) for name, s in manifest.signatures.items()}
    rules = next((graphs[name].rules() for name in ("step", "apply") if name in graphs), {})
    built = {name: _rebuilt(cut, laid_out, groups) for name, cut in graphs.items()}

    carried = carry_over(groups, rules, state, laid_out).sources if rules else {}
    for target, (source, factor) in carried.items():
        value = state[source]
        laid_out.values[target] = value if factor == 1.0 else (value * factor).astype(value.dtype)
    mine = [name for name, spec in laid_out.tensors.items() if spec.role == "optimizer"]
    used = {source for source, _ in carried.values()}
    numbers = [spec for spec in manifest.hyperparameters if not spec.name.startswith(("optimizer.", "schedule."))]
    changed = replace(
        manifest,
        tensors=tuple(laid_out.tensors.values()),
        accumulators=tuple(laid_out.accumulators.values()),
        joined=tuple(laid_out.joined.values()),
        hyperparameters=(*group_numbers(groups), *numbers),
        signatures={name: graph.signature for name, graph in built.items()},
        producer={**manifest.producer, **group_provenance(groups)},
        files={},
    )
    return Replacement(
        Bundle(changed, {graph.signature.file: graph.model for graph in built.values()}, laid_out.values),
        {target: source for target, (source, _) in carried.items()},
        tuple(name for name in (*mine, STEP) if name not in carried),
        tuple(spec.name for spec in manifest.tensors if spec.role == "optimizer" and spec.name not in used),
    )


def _decoded(bundle: Bundle) -> dict[str, NumpyArray]:
    """The state with bfloat16 as a type of numbers."""
    types = {spec.name: spec.dtype for spec in bundle.manifest.tensors}
    return {
        name: np.asarray(value).view(ml_dtypes.bfloat16) if types.get(name) == "bfloat16" else np.asarray(value)
        for name, value in bundle.state.items()
    }


def _refuse(groups: Sequence[UpdateGroup], trained: Mapping[str, NumpyArray]) -> None:
    if {name for group in groups for name in group.members} != set(trained):
        raise SignatureError("A finished bundle cannot freeze parameters; export it anew with `trainable`.")
    for group in groups:
        if next(group.curvatures(), None) is not None:
            raise SignatureError(
                f"{type(group.rule).__name__} needs further passes through the model for its curvature, which the "
                "graphs of a finished bundle do not have; export the model anew with it."
            )


def _layout(manifest: Manifest, groups: Sequence[UpdateGroup], state: Mapping[str, NumpyArray]) -> State:
    """The new state, with its first values; accumulators stay as they lie, since `accumulate` does."""
    by_role: dict[str, dict[str, NumpyArray]] = {"parameter": {}, "buffer": {}}
    for spec in manifest.tensors:
        by_role.setdefault(spec.role, {})[spec.name] = state[spec.name]
    fresh = initial_state(by_role["parameter"], by_role["buffer"], groups, 0)
    accumulators = {spec.name: spec for spec in manifest.accumulators if spec.slot is None}
    joined = {name: entry for name, entry in fresh.joined.items() if entry.members[0] in fresh.tensors}
    joined |= {entry.name: entry for entry in manifest.joined if entry.members[0] in accumulators}
    values = {**fresh.values, **{name: state[name] for name in (SEED, DRAWS) if name in state}}
    return State(fresh.tensors, accumulators, values, joined)


class _Cut:
    """A finished graph, and where the optimizer is in it."""

    def __init__(self, manifest: Manifest, name: str, content: bytes) -> None:
        self.manifest, self.name, self.content = manifest, name, content
        self.signature = manifest.signatures[name]
        self.model = ir.serde.deserialize_model(onnx.ModelProto.FromString(content))
        common_passes.ShapeInferencePass(strict_mode=False)(self.model)
        self.updates = list(self._calls("updated."))
        self.views = list(self._calls("view."))

    def _calls(self, prefix: str) -> Iterator[tuple[ir.Node, ir.Function]]:
        for node in self.model.graph:
            function = self.model.functions.get(node.op_identifier()) if node.domain == DOMAIN else None
            if function is not None and any((value.name or "").startswith(prefix) for value in function.outputs):
                yield node, function

    def rules(self) -> dict[str, OldRule]:
        """The rule of each parameter."""
        found: dict[str, OldRule] = {}
        defaults = {spec.name: spec.default for spec in self.manifest.hyperparameters}
        for node, function in self.updates:
            operands = _operands(node, function)
            numbers = {key: defaults[value.name or ""] for key, value in operands.items() if value.name in defaults}
            # A second call of one name has a number.
            wrapper = re.sub(r"_\d+$", "", node.op_type)
            inner = [key for key in node.attributes if re.fullmatch("inner(_inner)*", key)]
            rule = OldRule(node.attributes[max(inner, key=len)].as_string() if inner else wrapper, wrapper, numbers)
            found |= {key.removeprefix("param."): rule for key in operands if key.startswith("param.")}
        return found

    def gradients(self) -> dict[str, ir.Value]:
        """What the updates get, by parameter or joined unit."""
        return {
            key.removeprefix("grad."): value
            for node, function in self.updates
            for key, value in _operands(node, function).items()
            if key.startswith("grad.")
        }

    def replaced_outputs(self) -> set[GraphOutput]:
        """What the updates write, and the curvature that they needed."""
        mine = {spec.name for spec in self.manifest.memory if spec.role == "optimizer"}
        mine |= {spec.name for spec in self.manifest.accumulators if spec.slot is not None}
        if self.updates:
            mine |= {STEP, *(spec.name for spec in self.manifest.tensors if spec.role == "parameter")}
        names = {spec.name.split(".")[1] for spec in self.manifest.hyperparameters if spec.name.count(".") > 1}
        rates = {"lr", *(f"lr_{name}" for name in names)} if self.updates else set()
        return {
            port
            for port in self.signature.outputs
            if port.tensor in mine or (port.kind == "metric" and port.name in rates)
        }


def _operands(node: ir.Node, function: ir.Function) -> dict[str, ir.Value]:
    pairs = zip(function.inputs, node.inputs, strict=True)
    return {inner.name or "": outer for inner, outer in pairs if outer is not None}


def _rebuilt(cut: _Cut, state: State, groups: Sequence[UpdateGroup]) -> BuiltGraph:
    """The graph with the new optimizer, or as it was if it holds none."""
    if cut.updates:
        return _with_updates(cut, state, groups)
    for node, function in cut.views:
        for inner, view in zip(function.outputs, node.outputs, strict=True):
            name = (inner.name or "").removeprefix("view.")
            parameter = next(value for value in cut.model.graph.inputs if value.name == name)
            view.replace_all_uses_with(parameter)
    removed = cut.replaced_outputs()
    builder = GraphBuilder.reopen(cut.name, state, cut.signature, cut.model, _without(cut.signature, removed))
    forward_only = cut.name in ("evaluate", "predict")
    looked_through = look_through(builder, groups) if forward_only else False
    if not (cut.views or removed or looked_through):
        return BuiltGraph(cut.signature, cut.content)
    return builder.finish()


def _without(signature: Signature, removed: set[GraphOutput]) -> list[GraphOutput]:
    return [port for port in signature.outputs if port not in removed]


def _with_updates(cut: _Cut, state: State, groups: Sequence[UpdateGroup]) -> BuiltGraph:
    units = {name: _unit(cut.manifest, state, name) for name in cut.gradients()}
    values = cut.gradients()
    for name, value in values.items():
        spec = state.tensors[next(iter(units[name].members))]
        size = (sum(int(np.prod(shape)) for shape in units[name].members.values()),)
        value.type = ir.TensorType(ir.DataType.from_numpy(np.dtype(spec.dtype)))
        value.shape = ir.Shape(size if units[name].joined else spec.shape)
    cut.model.graph.outputs.extend(values.values())
    keep = _without(cut.signature, cut.replaced_outputs())
    builder = GraphBuilder.reopen(cut.name, state, cut.signature, cut.model, keep)
    arrays = {name: builder.tracer.wrap(value) for name, value in values.items()}
    gradients: dict[str, Array] = {}
    wanted = {tuple(unit.members): unit for group in groups for unit in group.units}
    for name, unit in units.items():
        if tuple(unit.members) in wanted:
            gradients[wanted[tuple(unit.members)].name] = arrays[name]
        else:
            gradients |= unit.split(arrays[name]) if unit.joined else {name: arrays[name]}
    update_groups(builder, groups, gradients, {})
    return builder.finish()


def _unit(manifest: Manifest, state: State, name: str) -> Unit:
    """What a gradient of the old update is that of."""
    for entry in manifest.joined:
        if entry.name == accumulator_name(name):
            owners = {spec.name: spec.parameter or "" for spec in manifest.accumulators}
            members = [owners[member] for member in entry.members]
            return Unit(name, {member: state.tensors[member].shape for member in members}, joined=True)
    return Unit(name, {name: state.tensors[name].shape})
