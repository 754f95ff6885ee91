"""Running statistics of normalisations that do not train: they stay as they are, and training normalises by them.

A frozen BatchNorm that still normalises by its batch, and whose statistics move on, computes one function in training
and another in evaluation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

import onnx_ir as ir

from edgeopt.autodiff.reach import origins
from edgeopt.canonical.copies import copied
from edgeopt.training.examining.decisions import decided, listed
from edgeopt.training.forward import ForwardModel
from edgeopt.training.graphs.simplify import remove_unused
from edgeopt_runtime.manifest import Decision

__all__ = ["BatchNorm", "hold_statistics"]

#: Whose statistics normalisations with running ones use in training. `"auto"`: as the module or file says, except that
#: those none of whose parameters train use the running ones, which then stay. `"frozen"`: all of them do. `"train"`
#: and `"file"`: as the module or file says, whatever trains.
BatchNorm: TypeAlias = Literal["auto", "file", "frozen", "train"]

# What a new running statistic is made of beside the statistics of a batch.
_BLENDING = frozenset({"Add", "Cast", "CastLike", "Div", "Expand", "Identity", "Mul", "Reshape", "Sub", "Where"})


class _Norm(NamedTuple):
    """A normalisation by the statistics of a batch, and its running mean and variance."""

    node: ir.Node
    statistics: tuple[ir.Value, ir.Value]

    @property
    def names(self) -> tuple[str, str]:
        mean, variance = self.statistics
        return mean.name or "", variance.name or ""


def hold_statistics(model: ForwardModel, trained: Collection[str], batch_norm: BatchNorm = "auto") -> ForwardModel:
    """Let normalisations that do not train use their running statistics in training too, and keep these.

    One without scale and bias trains if something in front of it does; where there is nothing in front, if the layers
    behind it do.

    Args:
        model: The model, which stays as it is.
        trained: Names of the parameters that train.
        batch_norm: Which normalisations it is done to.

    Returns:
        The model with another training graph and one more decision, or the same one if there is nothing to do.
    """
    if batch_norm in ("train", "file") or (batch_norm == "auto" and model.parameters.keys() <= set(trained)):
        return model
    copy = copied(model.train.model)
    norms = list(_norms(copy.graph, model))
    of_norms = {name for norm in norms for name in norm.names}
    # What forward itself writes moves as well: the weights of a momentum encoder, for instance.
    moving = {*trained, *model.train.updated_buffers, *model.train.updated_parameters} - of_norms
    training = [] if batch_norm == "frozen" else [norm for norm in norms if _trains(norm.node, model, moving)]
    shared = {name for norm in training for name in norm.names}
    held = [norm for norm in norms if shared.isdisjoint(norm.names)]
    if not held:
        return model
    for norm in held:
        _use_running(norm)
    kept = {name for norm in held for name in (*norm.names, *_counters(norm, model))}
    moved = [name for name in model.train.updated_buffers if name not in kept]
    train = model.train
    names = (*train.outputs, *train.updated_buffers, *train.updated_parameters)
    results = dict(zip(names, copy.graph.outputs, strict=True))
    copy.graph.outputs[:] = [results[name] for name in (*train.outputs, *moved, *train.updated_parameters)]
    for norm in held:
        norm.node.resize_outputs(1)
    remove_unused(copy)
    return dataclasses.replace(
        model,
        train=dataclasses.replace(model.train, model=copy, updated_buffers=tuple(moved)),
        decisions=(*model.decisions, _decision(held, batch_norm)),
    )


def _norms(graph: ir.Graph, model: ForwardModel) -> Iterator[_Norm]:
    updated = {value.name: value for value in graph.inputs if value.name in model.train.updated_buffers}
    for node in graph:
        if node.domain:
            continue
        of_batch = node.op_type == "BatchNormalization" and bool(node.attributes.get_int("training_mode"))
        if not of_batch and node.op_type != "InstanceNormalization":
            continue
        # A node that does not read its running statistics has a module beside whose name they are.
        module = (node.name or "").rpartition("/")[0]
        read = [_running(value, updated.values()) for value in node.inputs[3:5]]
        named = [updated.get(f"{module}.running_{kind}") for kind in ("mean", "var")]
        for mean, variance in (read, named) if of_batch else (named,):
            if mean is not None and variance is not None:
                yield _Norm(node, (mean, variance))
                break


def _running(value: ir.Value | None, updated: Collection[ir.Value]) -> ir.Value | None:
    """The buffer behind a statistic: itself, or what an earlier use of the same layer made of it."""
    waiting, found = [value], set()
    while waiting:
        current = waiting.pop()
        node = None if current is None else current.producer()
        if current in updated and current is not None and current.shape is not None and current.shape.rank() == 1:
            found.add(current)
        elif node is not None and node.op_type in _BLENDING:
            waiting.extend(node.inputs)
    return found.pop() if len(found) == 1 else None


def _trains(node: ir.Node, model: ForwardModel, moving: Collection[str]) -> bool:
    own = {name for value in node.inputs[1:3] for name in _sources(value)}
    if own & model.parameters.keys() or not own.isdisjoint(moving):
        return not own.isdisjoint(moving)
    before = _sources(node.inputs[0])
    if before & model.parameters.keys() or not before.isdisjoint(moving):
        return not before.isdisjoint(moving)
    behind = _first_parameters(node.outputs[0], model)
    return not behind or not behind.isdisjoint(moving)


def _sources(value: ir.Value | None) -> set[str]:
    """Names of the graph inputs that a tensor is computed from."""
    if value is None:
        return set()
    return {origin.name or "" for origin in origins(value, along_gradients=False) if origin.is_graph_input()}


def _first_parameters(value: ir.Value, model: ForwardModel) -> set[str]:
    """The parameters of the layers that a tensor reaches first."""
    found: set[str] = set()
    seen, waiting = {value}, [value]
    while waiting:
        for node, position in waiting.pop().uses():
            others = [operand for place, operand in enumerate(node.inputs) if place != position]
            own = {operand.name or "" for operand in others if operand is not None and operand.is_graph_input()}
            own &= model.parameters.keys()
            found |= own
            for result in node.outputs if not own else ():
                if result not in seen:
                    seen.add(result)
                    waiting.append(result)
    return found


def _use_running(norm: _Norm) -> None:
    node = norm.node
    node.op_type = "BatchNormalization"
    node.attributes.pop("training_mode", None)
    node.resize_inputs(5)
    for position, statistic in enumerate(norm.statistics, start=3):
        node.replace_input_with(position, statistic)


def _counters(norm: _Norm, model: ForwardModel) -> list[str]:
    """PyTorch's count of the batches, which belongs to the running statistics."""
    names = {f"{name.rpartition('.')[0]}.num_batches_tracked".removeprefix(".") for name in norm.names}
    return [name for name in names if name in model.buffers]


def _decision(held: Sequence[_Norm], batch_norm: BatchNorm) -> Decision:
    names = list(dict.fromkeys(name for norm in held for name in norm.names))
    layers = dict.fromkeys(_layer(norm.names) for norm in held)
    if batch_norm == "frozen":
        why = "as batch_norm='frozen' says"
    else:
        why = "since none of their parameters train; batch_norm='train' makes them use each batch's and move on"
    text = f"{len(layers)} normalisation(s) keep their running statistics and use them in training, {why}: "
    return decided("frozen", names, f"{text}{listed(layers)}.")


def _layer(statistics: tuple[str, str]) -> str:
    """`bn1` for `bn1.running_mean` and `bn1.running_var`; the names themselves where they have nothing in common."""
    owners = {name.rpartition(".")[0] for name in statistics}
    return owners.pop() if len(owners) == 1 and "" not in owners else " with ".join(statistics)
