"""Gradients of a model as a model of its own, for whoever wants derivatives and no training."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from edgeopt import tracing as xp
from edgeopt.autodiff import backward
from edgeopt.canonical import canonicalize
from edgeopt.errors import SignatureError, UnsupportedModelError
from edgeopt.lowering import lower, uses_random_numbers
from edgeopt.tracing import Array, Tracer
from edgeopt.training.simplify import clean_up

__all__ = ["gradient"]


def gradient(
    model: onnx.ModelProto | ir.Model | str | os.PathLike[str], *, of: str, wrt: str | Iterable[str]
) -> onnx.ModelProto:
    """A plain ONNX model that computes gradients of one number that another model computes.

    Saliency maps, adversarial inputs, sensitivities, forces from an energy: what a training step does not need. The
    result takes the same inputs, runs wherever the model runs, and can be differentiated again, for second derivatives.

    Args:
        model: An ONNX model or its path.
        of: The output to differentiate, a tensor of one element.
        wrt: Names of floating-point inputs, initializers or constants, one or several.

    Returns:
        A model at opset 20 whose outputs are the gradients in the order of `wrt`, called `gradient.<name>`, each with
        the shape and type of its tensor; zeros for a tensor that `of` does not depend on. Initializers keep their
        values.

    Raises:
        SignatureError: `of` is no output of one element, or `wrt` names what is no floating-point tensor.
        UnsupportedOperatorError: Operators between them have no gradient rule.
        UnsupportedModelError: The model draws random numbers, or is older than opset 7.
    """
    names = [wrt] if isinstance(wrt, str) else list(wrt)
    source = ir.load(os.fspath(model)) if isinstance(model, (str, os.PathLike)) else model
    copy = ir.serde.deserialize_model(ir.serde.serialize_model(source) if isinstance(source, ir.Model) else source)
    weights = _open(copy, names)
    canonical = canonicalize(copy)
    graph = canonical.graph
    if uses_random_numbers(graph):
        raise UnsupportedModelError(
            "The model draws random numbers (a Dropout in training mode, say), so that it has no one gradient. Set it "
            "to evaluation first."
        )
    tracer = Tracer(graph)
    by_name = {value.name: value for value in graph.inputs}
    scalar = _scalar(tracer, graph, of)
    operands = [tracer.wrap(by_name[name]) for name in names]
    found = backward(tracer, {scalar.value: xp.ones_like(scalar)}, [array.value for array in operands])
    graph.outputs.clear()
    for name, array, cotangent in zip(names, operands, found, strict=True):
        tracer.output(xp.zeros_like(array) if cotangent is None else cotangent, f"gradient.{name}")
    lower(tracer)
    clean_up(canonical)
    _close(graph, weights)
    return ir.serde.serialize_model(canonical)


def _open(model: ir.Model, names: Sequence[str]) -> dict[str, ir.TensorProtocol]:
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
        raise SignatureError(f"wrt={list(names)!r}: {what}. Floating-point ones are {some}.")
    if wrong := [name for name in names if not _is_float(known[name])]:
        raise SignatureError(f"wrt={list(names)!r}: {wrong} has no gradient, since it is not floating-point.")
    weights = {}
    for name in names:
        value = graph.initializers.pop(name, None)
        if value is not None and value.const_value is not None:
            weights[name], value.const_value = value.const_value, None
            if value not in graph.inputs:
                graph.inputs.append(value)
    return weights


def _close(graph: ir.Graph, weights: dict[str, ir.TensorProtocol]) -> None:
    """Give the weights their values back, in place."""
    for value in [value for value in graph.inputs if value.name in weights]:
        graph.inputs.remove(value)
        value.const_value = weights[value.name or ""]
        graph.register_initializer(value)


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
