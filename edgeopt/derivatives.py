"""Derivatives of a model as a model of its own, for whoever wants derivatives and no training."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from edgeopt import tracing as xp
from edgeopt.autodiff import backward
from edgeopt.canonical import canonicalize
from edgeopt.canonical.copies import copied, deserialized
from edgeopt.errors import SignatureError, UnsupportedModelError
from edgeopt.lowering import lower, uses_random_numbers
from edgeopt.tracing import Array, Tracer
from edgeopt.training.graphs.simplify import clean_up

__all__ = ["Model", "gradient", "hessian_vector", "load", "make_inputs"]

Model: TypeAlias = "onnx.ModelProto | ir.Model | str | os.PathLike[str]"


def gradient(model: Model, *, of: str, wrt: str | Iterable[str], value: bool = False) -> onnx.ModelProto:
    """A plain ONNX model that computes gradients of one number that another model computes.

    Saliency maps, adversarial inputs, sensitivities, forces from an energy: what a training step does not need. The
    result takes the same inputs, runs wherever the model runs, and can be differentiated again, for second derivatives.

    Args:
        model: An ONNX model or its path.
        of: The output to differentiate, a tensor of one element.
        wrt: Names of floating-point inputs, initializers or constants, one or several.
        value: Whether the result computes `of` too, as its first output.

    Returns:
        A model at opset 20 whose outputs are the gradients in the order of `wrt`, called `gradient.<name>`, each with
        the shape and type of its tensor; zeros for a tensor that `of` does not depend on. Initializers keep their
        values.

    Raises:
        SignatureError: `of` is no output of one element, or `wrt` names what is no floating-point tensor.
        UnsupportedOperatorError: Operators between them have no gradient rule.
        UnsupportedModelError: The model draws random numbers, or is older than opset 7.
    """
    names = _listed(wrt)
    opened = _open(model, of, names)
    operands = opened.arrays(names)
    found = _backward(opened.tracer, {opened.scalar.value: xp.ones_like(opened.scalar)}, operands)
    outputs = {of: opened.scalar} if value else {}
    return opened.finish(outputs | {f"gradient.{name}": array for name, array in zip(names, found, strict=True)})


def hessian_vector(
    model: Model, *, of: str, wrt: str | Iterable[str], along: str | Iterable[str] | None = None
) -> onnx.ModelProto:
    """A plain ONNX model that multiplies second derivatives with a vector, without forming a matrix.

    With `along` left out, H v for the Hessian H with respect to `wrt`. With other names in `along`, the block of mixed
    derivatives: the gradient with respect to `wrt` of ⟨∇ of, v⟩, the gradient being that with respect to `along`.

    Args:
        model: An ONNX model or its path.
        of: The output to differentiate, a tensor of one element.
        wrt: Names of floating-point inputs, initializers or constants, one or several.
        along: Names of the tensors that the vector has a part for; those of `wrt` by default.

    Returns:
        A model at opset 20 with further inputs `vector.<name>`, like the tensors of `along`. Its outputs are the
        products in the order of `wrt`, called `product.<name>`, each with the shape and type of its tensor.

    Raises:
        SignatureError: `of` is no output of one element, or a name is that of no floating-point tensor.
        UnsupportedOperatorError: Operators between them have no gradient rule.
        UnsupportedModelError: The model draws random numbers, or is older than opset 7.
    """
    names = _listed(wrt)
    others = names if along is None else _listed(along)
    opened = _open(model, of, list(dict.fromkeys([*names, *others])) if names and others else [])
    tracer, operands = opened.tracer, opened.arrays(others)
    vectors = [
        tracer.input(f"vector.{name}", array.dtype, array.shape) for name, array in zip(others, operands, strict=True)
    ]
    found = backward(tracer, {opened.scalar.value: xp.ones_like(opened.scalar)}, [array.value for array in operands])
    seeds: dict[ir.Value, Array] = {}
    for first, vector in zip(found, vectors, strict=True):
        if first is not None:
            # Two tensors may have the very same gradient.
            seeds[first.value] = seeds[first.value] + vector if first.value in seeds else vector
    products = _backward(tracer, seeds, opened.arrays(names))
    return opened.finish({f"product.{name}": array for name, array in zip(names, products, strict=True)})


def load(model: Model) -> ir.Model:
    """A copy of a model, to be changed; weights in files beside a model file are read."""
    if isinstance(model, (str, os.PathLike)):
        return ir.external_data.load_to_model(ir.load(os.fspath(model)))
    return copied(model) if isinstance(model, ir.Model) else deserialized(model)


def make_inputs(model: ir.Model, names: Sequence[str]) -> dict[str, ir.TensorProtocol]:
    """Make inputs, in place, of the weights among the names, so that nothing is folded into them; return their values.

    Raises:
        SignatureError: A name is given twice, unknown, or not that of a floating-point tensor.
    """
    graph = model.graph
    if missing := set(names) - {value.name for value in graph.inputs} - set(graph.initializers):
        common_passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        missing -= set(graph.initializers)
    known = {value.name: value for value in (*graph.initializers.values(), *graph.inputs)}
    if missing or len(set(names)) < len(names) or not names:
        some = ", ".join(repr(name) for name, value in known.items() if _is_float(value))
        what = f"{sorted(missing)} is no input or initializer" if missing else "each tensor is to be named once"
        raise SignatureError(f"Of {list(names)!r}, {what}. Floating-point ones are {some}.")
    if wrong := [name for name in names if not _is_float(known[name])]:
        raise SignatureError(f"Of {list(names)!r}, {wrong} has no gradient, since it is not floating-point.")
    weights = {}
    for name in names:
        value = graph.initializers.pop(name, None)
        if value is not None and value.const_value is not None:
            weights[name], value.const_value = value.const_value, None
            if value not in graph.inputs:
                graph.inputs.append(value)
    return weights


class _Opened(NamedTuple):
    """A canonical model under the tracer, with the number to differentiate, and the values of what became inputs."""

    model: ir.Model
    tracer: Tracer
    scalar: Array
    weights: dict[str, ir.TensorProtocol]

    @property
    def graph(self) -> ir.Graph:
        return self.model.graph

    def arrays(self, names: Sequence[str]) -> list[Array]:
        by_name = {value.name: value for value in self.graph.inputs}
        return [self.tracer.wrap(by_name[name]) for name in names]

    def finish(self, outputs: dict[str, Array]) -> onnx.ModelProto:
        """The model with these outputs, ready for a runtime, its weights with their values again."""
        self.graph.outputs.clear()
        for name, array in outputs.items():
            self.tracer.output(array, name)
        lower(self.tracer)
        clean_up(self.model)
        for value in [value for value in self.graph.inputs if value.name in self.weights]:
            self.graph.inputs.remove(value)
            value.const_value = self.weights[value.name or ""]
            self.graph.register_initializer(value)
        return ir.serde.serialize_model(self.model)


def _open(model: Model, of: str, names: Sequence[str]) -> _Opened:
    copy = load(model)
    weights = make_inputs(copy, names)
    canonical = canonicalize(copy)
    if uses_random_numbers(canonical.graph):
        raise UnsupportedModelError(
            "The model draws random numbers (a Dropout in training mode, say), so that it has no one gradient. Set it "
            "to evaluation first."
        )
    tracer = Tracer(canonical.graph)
    return _Opened(canonical, tracer, _scalar(tracer, canonical.graph, of), weights)


def _listed(names: str | Iterable[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _backward(tracer: Tracer, seeds: dict[ir.Value, Array], operands: Sequence[Array]) -> list[Array]:
    found = backward(tracer, seeds, [array.value for array in operands])
    return [xp.zeros_like(array) if one is None else one for array, one in zip(operands, found, strict=True)]


def _scalar(tracer: Tracer, graph: ir.Graph, of: str) -> Array:
    outputs = {value.name: value for value in graph.outputs}
    if of not in outputs:
        raise SignatureError(f"of={of!r} is no output; the model's outputs are {list(outputs)}.")
    value = outputs[of]
    if not _is_float(value) or value.shape is None or any(dim != 1 for dim in value.shape):
        raise SignatureError(
            f"of={of!r} is a tensor of {value.dtype} and shape {value.shape}, but only one floating-point number has "
            "a gradient. Add a node that makes one of it, a ReduceSum or a Gather, and differentiate that."
        )
    return tracer.wrap(value)


def _is_float(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()
