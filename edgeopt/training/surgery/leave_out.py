"""Gradient transforms of a finished graph without some of the gradients."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields

import numpy as np
import onnx_ir as ir

from edgeopt.errors import SignatureError
from edgeopt.fusion import unfuse
from edgeopt.tracing import Array, trace_function
from edgeopt.tracing.subgraphs import remove_unused
from edgeopt.training.surgery.cut import Call, Cut
from edgeopt.training.updating.update import run_transform
from edgeopt.transforms import TRANSFORMS, Transform

__all__ = ["leave_out"]


def leave_out(cut: Cut, parameters: Collection[str]) -> None:
    """Let the transforms of a graph do what they would if some parameters were not trained, in place.

    What a transform does for each gradient by itself is cut out. One of edgeopt's own that combines gradients, such as
    a global norm, is recorded anew with those that remain.

    Raises:
        SignatureError: Another transform combines gradients.
    """
    if parameters and cut.transforms:
        # A chain takes all gradients together; its nodes take each by itself.
        unfuse(cut.model)
    for position in range(len(cut.transforms) if parameters else 0):
        call = cut.transforms[position]
        left, function = {f"{kind}.{name}" for name in parameters for kind in ("grad", "param")}, call.function
        results = {f"next.{name}" for name in parameters}
        function.outputs[:] = [value for value in function.outputs if value.name not in results]
        remove_unused(function.graph)
        if any(value.uses() for value in function.inputs if value.name in left):
            known = _own(cut, call)
            if known is None:
                raise SignatureError(
                    f"The transform {call.node.op_type} combines the gradients of all parameters, and a finished "
                    "bundle does not say how to do without those that are to be frozen; export the model anew."
                )
            function = _recorded(cut, call, known, [key for key in call.operands if key not in left])
        for value in [value for value in function.inputs if not value.uses()]:
            function.inputs.remove(value)
        cut.model.functions[function.identifier()] = function
        _replace(cut, call, function)


def _own(cut: Cut, call: Call) -> Transform | None:
    """The transform, if it is one of those that edgeopt brings with it."""
    numbers = cut.numbers(call)
    for kind in TRANSFORMS.values():
        named = call.node.op_type == kind.__name__ or call.node.op_type.startswith(f"{kind.__name__}_")
        if named and {field.name for field in fields(kind)} == numbers.keys():
            return kind(**numbers)
    return None


def _recorded(cut: Cut, call: Call, transform: Transform, operands: Collection[str]) -> ir.Function:
    names = [key.removeprefix("grad.") for key in operands if key.startswith("grad.")]
    scalars = {"step": (np.dtype(np.int64), ()), **{key: (np.dtype(np.float64), ()) for key in cut.numbers(call)}}
    tensors = {
        f"{kind}.{name}": (np.dtype(cut.parameters[name].dtype), cut.parameters[name].shape)
        for kind in ("param", "grad")
        for name in names
    }

    def body(x: dict[str, Array]) -> dict[str, Array]:
        new, metrics = run_transform(transform, names, x)
        return {**new, **metrics}

    return trace_function(call.function.name, {**scalars, **tensors}, body, tuple(call.function.attributes))


def _replace(cut: Cut, call: Call, function: ir.Function) -> None:
    """Call a function with fewer operands and results instead."""
    node = ir.Node(
        call.node.domain,
        call.node.op_type,
        [call.operands[value.name or ""] for value in function.inputs],
        list(call.node.attributes.values()),
        num_outputs=len(function.outputs),
        name=call.node.name,
    )
    cut.model.graph.insert_after(call.node, node)
    for inner, new in zip(function.outputs, node.outputs, strict=True):
        old = call.results[inner.name or ""]
        new.name, old.name = old.name, None
        new.type, new.shape = old.type, old.shape
        old.replace_all_uses_with(new, replace_graph_outputs=True)
    for key, old in call.results.items():
        # What still reads a gradient that is left out will be cut out itself.
        if old.uses():
            old.replace_all_uses_with(call.operands[f"grad.{key.removeprefix('next.')}"])
    cut.model.graph.remove(call.node, safe=True)
