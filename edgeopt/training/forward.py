"""What an exporter hands over: a model's forward computation, ready to be differentiated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from edgeopt.canonical.copies import copied
from edgeopt.errors import SignatureError
from edgeopt.losses import ArraySpec
from edgeopt.tracing import shapes
from edgeopt.tracing.array import to_numpy_dtype
from edgeopt_runtime.manifest import AdapterSpec, Decision, Encoded

__all__ = ["ForwardGraph", "ForwardModel", "Merging"]


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

    def specs(self, names: Sequence[str]) -> dict[str, ArraySpec]:
        """dtype and shape of inputs or outputs; an unnamed dimension gets a name of its own.

        Raises:
            SignatureError: The type or rank of one is not known.
        """
        values: dict[str, ir.Value] = {value.name or "": value for value in self.model.graph.inputs}
        results = (*self.outputs, *self.updated_buffers, *self.updated_parameters)
        values.update(zip(results, self.model.graph.outputs, strict=True))
        specs = {}
        for name in names:
            value = values[name]
            if value.dtype is None or value.shape is None:
                raise SignatureError(f"The type or rank of {name!r} is not known.")
            dims = shapes.from_ir(value.shape)
            shape = tuple(f"{name}_dim_{axis}" if dim is None else dim for axis, dim in enumerate(dims))
            specs[name] = ArraySpec(name, to_numpy_dtype(value.dtype).name, shape)
        return specs

    def copy(self) -> ir.Graph:
        """The graph again, to be built upon."""
        return copied(self.model).graph


@dataclass(frozen=True)
class Merging:
    """How a model with adapters becomes one without.

    Attributes:
        merge: From parameters to the weights that the plain model needs in place of its own.
        plain: The model for prediction without adapters; it reads those weights under the names that they have there.
        places: These names, each with that of the parameter that it stands for.
    """

    merge: ForwardGraph
    plain: ForwardGraph
    places: Mapping[str, str]


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
        losses: Outputs that are losses of the model's own, or count what they are means of: no predictions.
        labels: Inputs that nothing but those depends on.
        adapters: What was put beside its layers, for the manifest.
        merging: How to get rid of them again, if they added anything.
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
    losses: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    adapters: tuple[AdapterSpec, ...] = ()
    merging: Merging | None = None

    @property
    def default_output(self) -> str:
        """The output that the loss reads unless told otherwise; no loss of the model's own, if there is another."""
        others = [name for name in self.train.outputs if name not in self.losses]
        return self.scores or (others or self.train.outputs)[0]

    @property
    def predicted(self) -> tuple[str, ...]:
        """The outputs that predictions have."""
        hidden = self.losses | ({self.scores} if self.hidden else set())
        return tuple(name for name in self.evaluate.outputs if name not in hidden)

    def for_prediction(self, graph: ForwardGraph) -> ForwardGraph:
        """A graph of the model without the inputs that predictions do not depend on."""
        return replace(graph, inputs=tuple(name for name in graph.inputs if name not in self.labels))
