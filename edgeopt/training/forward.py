"""What an exporter hands over: a model's forward computation, ready to be differentiated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from edgeopt.canonical.copies import copied
from edgeopt_runtime.manifest import Decision, Encoded

__all__ = ["ForwardGraph", "ForwardModel"]


@dataclass(frozen=True)
class ForwardGraph:
    """One mode of a model as a plain graph at the target opset.

    Attributes:
        model: Its graph takes the model's inputs and, by their names, parameters and buffers; it holds no function and
            no trainable initializer. Its outputs are the model's, then the new values of `updated_buffers` and
            of `updated_parameters`.
        inputs: Names of the model's inputs, in order.
        outputs: Names of the model's outputs, in order.
        updated_buffers: Buffers that this mode changes.
        updated_parameters: Parameters that this mode writes into. What reads them afterwards has the gradient of the
            parameter itself, as under `Tracer.written`.
    """

    model: ir.Model
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    updated_buffers: tuple[str, ...] = ()
    updated_parameters: tuple[str, ...] = ()

    def copy(self) -> ir.Graph:
        """The graph again, to be built upon."""
        return copied(self.model).graph


@dataclass(frozen=True)
class ForwardModel:
    """A model's two modes and its state.

    Attributes:
        train: Forward in training mode: dropout on, statistics updated.
        evaluate: Forward for evaluation and prediction.
        parameters: What gradients can be taken of.
        buffers: The rest of the state (running statistics, constants that the module registered).
        frozen: Parameters that the framework holds fixed, so that they are not trained unless asked for by name.
        provenance: Where it came from, for the manifest.
        decisions: What the exporter settled by itself.
        aliases: Further names of parameters and buffers that the model uses under several, each with the name here.
        scores: The output that the loss reads unless told otherwise, if not the first: logits in front of a Softmax.
        encoded: The parameters that the graphs read in fewer bits, from buffers in their place.
        hidden: Whether that is none of the model's own outputs, and predictions are without it.
    """

    train: ForwardGraph
    evaluate: ForwardGraph
    parameters: Mapping[str, np.ndarray[Any, Any]]
    buffers: Mapping[str, np.ndarray[Any, Any]]
    frozen: frozenset[str] = frozenset()
    provenance: Mapping[str, str] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    scores: str | None = None
    hidden: bool = False
    encoded: tuple[Encoded, ...] = ()

    @property
    def predicted(self) -> tuple[str, ...]:
        """The outputs that predictions have."""
        return tuple(name for name in self.evaluate.outputs if not (self.hidden and name == self.scores))
