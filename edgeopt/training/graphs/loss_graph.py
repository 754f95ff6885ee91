"""A loss by itself, as a graph: what it is at some prediction, and its gradient there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.autodiff import backward
from edgeopt.losses import Loss
from edgeopt.lowering import lower
from edgeopt.tracing import Tracer, new_graph, new_model
from edgeopt.training.graphs.simplify import clean_up
from edgeopt_runtime.manifest import InputSpec, OutputSpec

__all__ = ["loss_graph"]


def loss_graph(loss: Loss, prediction: OutputSpec, targets: Sequence[InputSpec]) -> bytes:
    """A serialized model (prediction, targets) → (`total`, `weight`, `cotangent`): the loss sum and its gradient."""
    graph = new_graph("loss")
    tracer = Tracer(graph)
    x = tracer.input("prediction", np.dtype(prediction.dtype), prediction.shape)
    arrays = [tracer.input(f"target.{spec.name}", np.dtype(spec.dtype), spec.shape) for spec in targets]
    total, weight = loss.terms(xp, x, *arrays)
    (cotangent,) = backward(tracer, {total.value: xp.ones_like(total)}, [x.value])
    tracer.output(total, "total")
    tracer.output(weight, "weight")
    tracer.output(xp.zeros_like(x) if cotangent is None else cotangent, "cotangent")
    lower(tracer)
    model = new_model(graph)
    clean_up(model)
    content: bytes = ir.serde.serialize_model(model).SerializeToString()
    return content
