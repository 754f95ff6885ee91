"""Models as ONNX Runtime runs them for a check: loaded in float64, lowered, in a session."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from numpy.typing import NDArray

from edgeopt.canonical import canonicalize
from edgeopt.canonical.copies import copied, deserialized
from edgeopt.errors import SignatureError
from edgeopt.lowering import lower, uses_random_numbers
from edgeopt.testing.double import always_float32, to_double
from edgeopt.tracing import Array, Tracer, new_graph, new_model
from edgeopt.tracing.shapes import Shape

__all__ = ["Model", "Program", "Tensors", "load"]

Model: TypeAlias = "onnx.ModelProto | ir.Model | str | os.PathLike[str] | Callable[..., Any]"
Tensors: TypeAlias = "dict[str, NDArray[Any]]"


class Program:
    """A lowered copy of a model, in a session."""

    def __init__(self, model: ir.Model) -> None:
        copy = copied(model)
        tracer = Tracer(copy.graph)
        if uses_random_numbers(copy.graph):
            lower(tracer, seed=tracer.constant(np.int64(0)), draws=tracer.constant(np.int64(0)))
        else:
            lower(tracer)
        # A graph without nodes is none that ONNX Runtime loads; its outputs are constants or inputs.
        self._known = None if len(copy.graph) else {value.name or "": value.const_value for value in copy.graph.outputs}
        if self._known is not None:
            return
        options = onnxruntime.SessionOptions()
        # What goes wrong is raised; it need not be printed as well.
        options.log_severity_level = 4
        # Threads that wait busily cost more than a small graph does.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        serialized = ir.serde.serialize_model(copy).SerializeToString()
        self._session = onnxruntime.InferenceSession(serialized, options, providers=["CPUExecutionProvider"])
        self._inputs = {value.name for value in self._session.get_inputs()}

    def run(self, values: Tensors) -> Tensors:
        """Outputs by name."""
        if self._known is not None:
            return {name: values[name] if value is None else value.numpy() for name, value in self._known.items()}
        feeds = {name: np.asarray(value) for name, value in values.items() if name in self._inputs}
        names = [output.name for output in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, feeds), strict=True))


def load(
    model: Model, inputs: Mapping[str, Any] | Sequence[Any], shapes: Mapping[str, Shape]
) -> tuple[ir.Model, Tensors]:
    """The model in float64 with its float initializers as inputs, and the values of all inputs."""
    if callable(model):
        return _trace(model, inputs, shapes)
    if isinstance(model, (str, os.PathLike)):
        model = onnx.load(model)
    given = copied(model) if isinstance(model, ir.Model) else deserialized(model)
    graph = given.graph
    names = [value.name or "" for value in graph.inputs if value.name not in graph.initializers]
    values = {**_floats_to_inputs(graph), **_by_name(inputs, names)}
    canonical = canonicalize(given)
    to_double(canonical.graph)
    for value in canonical.graph.inputs:
        if value.name in values and value.dtype is not None and value.dtype.is_floating_point():
            values[value.name] = values[value.name].astype(value.dtype.numpy())
    return canonical, values


def _floats_to_inputs(graph: ir.Graph) -> Tensors:
    """Make floating-point initializers inputs, before anything is folded into them; their values, in float64."""
    kept, values = always_float32(graph), {}
    for name, value in list(graph.initializers.items()):
        known = value.const_value
        # Floats of a byte hold quantized numbers, and stay.
        is_number = known is not None and known.dtype.is_floating_point() and known.dtype.bitwidth > 8
        if known is not None and is_number and value not in kept:
            values[name] = known.numpy().astype(np.float64)
            del graph.initializers[name]
            value.const_value = None
            if value not in graph.inputs:
                graph.inputs.append(value)
    return values


def _trace(
    function: Callable[..., Any], inputs: Mapping[str, Any] | Sequence[Any], shapes: Mapping[str, Shape]
) -> tuple[ir.Model, Tensors]:
    names = list(inputs) if isinstance(inputs, Mapping) else [f"input_{i}" for i in range(len(inputs))]
    values = _by_name(inputs, names)
    tracer = Tracer(new_graph("checked"))
    arrays = {name: tracer.input(name, value.dtype, shapes.get(name, value.shape)) for name, value in values.items()}
    results = function(**arrays) if isinstance(inputs, Mapping) else function(*arrays.values())
    for position, result in enumerate([results] if isinstance(results, Array) else results):
        tracer.output(result, f"output_{position}")
    return new_model(tracer.graph), values


def _by_name(inputs: Mapping[str, Any] | Sequence[Any], names: Sequence[str]) -> Tensors:
    given = dict(inputs) if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=False))
    count = len(inputs)
    if set(names) - set(given) or count != len(given):
        raise SignatureError(
            f"The model takes the inputs {', '.join(names)}, but {count} were given: {', '.join(given)}."
        )
    arrays = {name: np.asarray(value) for name, value in given.items()}
    return {name: a.astype(np.float64) if a.dtype.kind == "f" else a for name, a in arrays.items()}
