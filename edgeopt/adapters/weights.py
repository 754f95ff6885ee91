"""The weights of layers: as numbers, and as arrays of another graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from edgeopt.adapters.base import NumpyArray
from edgeopt.adapters.layers import Layer, uses_of
from edgeopt.canonical.copies import copied
from edgeopt.tracing import Array, Tracer
from edgeopt.tracing.inlining import inline
from edgeopt.training.forward import ForwardModel
from edgeopt.training.graphs.simplify import remove_unused

__all__ = ["weight_in", "weight_of"]


def weight_of(model: ForwardModel, layer: Layer) -> NumpyArray:
    """The weight of a layer, (out, in, *kernel)."""
    if not layer.computed:
        return np.transpose(model.parameters[layer.weight], layer.order)
    alone = _alone(model, layer)
    feeds = {value.name or "": model.parameters[value.name or ""] for value in alone.graph.inputs}
    (found,) = ReferenceEvaluator(ir.serde.serialize_model(alone)).run(None, feeds)
    return np.transpose(np.asarray(found), layer.order)


def weight_in(tracer: Tracer, model: ForwardModel, layer: Layer, state: Callable[[str], Array]) -> Array:
    """The weight of a layer as the model keeps it, in another graph, where `state` gives parameters."""
    if not layer.computed:
        return state(layer.weight)
    alone = _alone(model, layer)
    (found,) = inline(tracer, alone.graph, [state(value.name or "") for value in alone.graph.inputs])
    return found


def _alone(model: ForwardModel, layer: Layer) -> ir.Model:
    """What a weight is computed by, and nothing else."""
    copy = copied(model.evaluate.model)
    uses = uses_of(copy.graph, model.parameters.keys())
    source = next(use.source for use in uses if (use.name, use.kind) == (layer.weight, layer.kind))
    copy.graph.outputs[:] = [source]
    remove_unused(copy)
    copy.graph.inputs[:] = [value for value in copy.graph.inputs if value.uses()]
    return copy
