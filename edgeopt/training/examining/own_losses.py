"""Losses that a model computes itself, from labels among its inputs: neither belongs to predictions."""

from __future__ import annotations

from dataclasses import replace

from edgeopt.autodiff.reach import origins
from edgeopt.losses import FromOutput, Loss
from edgeopt.training.forward import ForwardModel

__all__ = ["with_own_losses"]


def with_own_losses(model: ForwardModel, loss: Loss) -> ForwardModel:
    """The model, which says what of it are losses and labels.

    Where a model returns nothing else than losses, these are its predictions.

    Args:
        model: The model.
        loss: What is minimised; a `FromOutput` among it names outputs that are losses.
    """
    own = {name for _, each in loss.parts() if isinstance(each, FromOutput) for name in each.hidden()}
    graph = model.evaluate
    results = dict(zip(graph.outputs, graph.model.graph.outputs, strict=False))
    predicted = [value for name, value in results.items() if name not in own]
    if not own or not predicted:
        return model
    read = {found.name for value in predicted for found in origins(value, along_gradients=False)}
    return replace(model, losses=frozenset(own), labels=frozenset(graph.inputs) - read)
