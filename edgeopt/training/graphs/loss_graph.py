"""What is minimised by itself, as a graph: what it is at some outputs of the model, and its gradient there."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.autodiff import backward
from edgeopt.losses import ArraySpec
from edgeopt.lowering import lower
from edgeopt.tracing import Tracer, new_graph, new_model
from edgeopt.training.graphs.simplify import clean_up
from edgeopt.training.objective import Objective
from edgeopt.training.reports import LOSS, loss_numbers, loss_sums

__all__ = ["loss_graph"]


def loss_graph(objective: Objective, outputs: Mapping[str, ArraySpec]) -> bytes:
    """A serialized model (outputs, targets) → (`loss`, `total`, cotangents): the loss, and the sum of all shares' sums.

    Its inputs are `output.NAME` and `target.NAME`, its cotangents `cotangent.NAME`, those of `total`.

    Args:
        objective: The losses.
        outputs: The model's outputs that they read.
    """
    graph = new_graph("loss")
    tracer = Tracer(graph)
    predictions = {
        name: tracer.input(f"output.{name}", np.dtype(outputs[name].dtype), outputs[name].shape)
        for name in objective.outputs
    }
    arrays = {
        spec.name: tracer.input(f"target.{spec.name}", np.dtype(spec.dtype), spec.shape) for spec in objective.inputs
    }
    traced = objective.trace(predictions, lambda spec: arrays[spec.name])
    totals = [share.total for share in objective.by_share(traced)]
    total = sum(totals[1:], start=totals[0])
    found = backward(tracer, {total.value: xp.ones_like(total)}, [array.value for array in predictions.values()])
    tracer.output(loss_numbers(objective, loss_sums(objective, traced), empty=0.0)[LOSS], "loss")
    tracer.output(total, "total")
    for (name, array), cotangent in zip(predictions.items(), found, strict=True):
        tracer.output(xp.zeros_like(array) if cotangent is None else cotangent, f"cotangent.{name}")
    lower(tracer)
    model = new_model(graph)
    clean_up(model)
    content: bytes = ir.serde.serialize_model(model).SerializeToString()
    return content
