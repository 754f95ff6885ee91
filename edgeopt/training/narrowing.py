"""Frozen weights in few bits: the graphs read codes and scales, and decode them where they are used.

Kernels of convolutions are decoded for good when a session opens, since ONNX Runtime lays them out anew anyway: they
are narrow on disk alone. Matrices are decoded by standard operators in front of each product, and again in the backward
pass, so that no decoded matrix is kept between the two. Of a table, rows are taken first, and only they are decoded.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.canonical.copies import copied
from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.quantization.maps import NF4
from edgeopt.tracing import Array, Tracer, op
from edgeopt.tracing.marks import REGION, WEIGHTS
from edgeopt.tracing.site import Site
from edgeopt.training.forward import ForwardGraph, ForwardModel, Merging
from edgeopt_runtime.manifest import Decision, Encoded, TensorSpec
from edgeopt_runtime.narrow import decoded, encoded

__all__ = ["FrozenWeights", "check_format", "narrowed"]

#: How weights that do not train are stored.
FrozenWeights = Literal["float32", "float16", "int8", "int4", "nf4"]

NumpyArray: TypeAlias = np.ndarray[Any, Any]

# Of 4 bits, as QLoRA has them.
_BLOCK = 64
_TABLES = {"int4": tuple(code / 7 for code in range(-8, 8)), "nf4": tuple(float(value) for value in NF4)}
# Smaller ones do not count, and scales would be as large as what they save.
_LEAST = 4096
_MATRIX, _KERNEL = 2, 3
_LARGEST_HALF = 65504.0
# Operators whose result is a weight in another arrangement.
_TURNING = ("Transpose", "Squeeze", "Unsqueeze", "Identity")


@dataclass(frozen=True)
class _Narrow:
    """One weight, its parts and what they hold."""

    entry: Encoded
    spec: TensorSpec
    parts: Mapping[str, NumpyArray]
    value: NumpyArray


def check_format(kind: str) -> None:
    """Refuse another word.

    Raises:
        ConfigurationError: It is none of `FrozenWeights`.
    """
    if kind not in get_args(FrozenWeights):
        raise ConfigurationError(f"frozen_weights must be one of {', '.join(get_args(FrozenWeights))}, got {kind!r}.")


def narrowed(model: ForwardModel, trained: Collection[str], kind: FrozenWeights) -> ForwardModel:
    """The model with its large frozen weights stored in another type; its parameters are what the graphs decode.

    Args:
        model: The model.
        trained: Names of the parameters that train.
        kind: ``int8`` has a scale for each channel, ``int4`` and ``nf4`` one for 64 elements of a row; where rows
            do not divide so, and for kernels of convolutions, these are ``int8`` too.
    """
    check_format(kind)
    written = {*trained, *model.train.updated_parameters, *model.evaluate.updated_parameters}
    narrow = [
        _narrow(model, name, value, kind)
        for name, value in model.parameters.items()
        if kind != "float32" and name not in written and _is_worth_it(value, kind)
    ]
    if not narrow:
        return model
    taken = {*model.parameters, *model.buffers, *model.train.inputs}
    clash = sorted(taken & {part for one in narrow for part in one.parts})
    if clash:
        raise SignatureError(f"Stored weights would be called {clash}, as parts of the model are; rename those.")
    values = {one.entry.name: one.value for one in narrow}
    return replace(
        model,
        train=_rewritten(model.train, narrow),
        evaluate=_rewritten(model.evaluate, narrow),
        merging=None if model.merging is None else _merging(model.merging, narrow),
        parameters={name: values.get(name, value) for name, value in model.parameters.items()},
        buffers={**model.buffers, **{part: array for one in narrow for part, array in one.parts.items()}},
        encoded=tuple(one.entry for one in narrow),
        decisions=(*model.decisions, _decision(model, narrow, kind)),
    )


def _is_worth_it(value: NumpyArray, kind: FrozenWeights) -> bool:
    large = value.dtype == np.float32 and value.ndim >= _MATRIX and value.size >= _LEAST
    return large and bool(np.isfinite(value).all()) and (kind != "float16" or np.abs(value).max() <= _LARGEST_HALF)


def _narrow(model: ForwardModel, name: str, value: NumpyArray, kind: FrozenWeights) -> _Narrow:
    codes, scales = f"{name}.codes", f"{name}.scales"
    spec = TensorSpec(name, "parameter", value.dtype.name, value.shape)
    width = math.prod(value.shape[1:])
    if kind == "float16":
        entry, shapes = Encoded(name, codes), {codes: ("float16", value.shape)}
    elif kind in _TABLES and value.ndim == _MATRIX and width % _BLOCK == 0:
        rows = value.shape[0]
        entry = Encoded(name, codes, scales, _TABLES[kind], _BLOCK)
        shapes = {codes: ("uint8", (rows, width // 2)), scales: ("float32", (rows, width // _BLOCK))}
    else:
        axis = _channels(model, name)
        entry = Encoded(name, codes, scales)
        one = tuple(length if place == axis else 1 for place, length in enumerate(value.shape))
        shapes = {codes: ("int8", value.shape), scales: ("float32", one)}
    specs = {part: TensorSpec(part, "buffer", dtype, shape) for part, (dtype, shape) in shapes.items()}
    parts = encoded(entry, value, specs)
    return _Narrow(entry, spec, parts, decoded(entry, spec, parts))


def _channels(model: ForwardModel, name: str) -> int:
    """The axis of a weight whose slices each make an output of their own, or are taken as rows."""
    value = next((each for each in model.evaluate.model.graph.inputs if each.name == name), None)
    found = [axis for node, place in (value.uses() if value else ()) if (axis := _axis(node, place)) is not None]
    return 0 if 0 in found else next(iter(found), 0)


def _axis(node: ir.Node, place: int) -> int | None:
    if node.op_type == "MatMul" and place == 1:
        return 1
    if node.op_type == "Gemm" and place == 1:
        return 0 if node.attributes.get_int("transB", 0) else 1
    if node.op_type == "ConvTranspose":
        return 1
    return None if node.op_type == "MatMul" else 0


def _rewritten(forward: ForwardGraph, narrow: Collection[_Narrow]) -> ForwardGraph:
    """The graph with inputs for the parts, in place of those for the weights."""
    model = copied(forward.model)
    tracer = Tracer(model.graph)
    by_name = {value.name: value for value in model.graph.inputs}
    for one in narrow:
        weight = by_name.get(one.entry.name)
        if weight is None:
            continue
        if not weight.uses() and not weight.is_graph_output():
            model.graph.inputs.remove(weight)
            continue
        arrays = {name: tracer.input(name, array.dtype, array.shape) for name, array in one.parts.items()}
        with tracer.scope(one.entry.name):
            whole = _replace(tracer, weight, one, arrays)
        if whole is not None:
            _mark(whole.value, f"{WEIGHTS}{one.entry.name}")
        model.graph.inputs.remove(weight)
    model.graph.sort()
    return replace(forward, model=model)


def _merging(merging: Merging, narrow: Collection[_Narrow]) -> Merging:
    return replace(merging, merge=_rewritten(merging.merge, narrow), plain=_rewritten(merging.plain, narrow))


def _mark(whole: ir.Value, region: str) -> None:
    """Have what makes a weight, and what only turns it around, computed again in the backward pass."""
    waiting = [node for node in [whole.producer()] if node is not None]
    while waiting:
        node = waiting.pop()
        node.metadata_props[REGION] = region
        before = (value.producer() for value in node.inputs if value is not None)
        behind = (reader for value in node.outputs for reader, _ in value.uses() if reader.op_type in _TURNING)
        for other in (*before, *behind):
            if other is not None and other.op_type != "Constant" and REGION not in other.metadata_props:
                waiting.append(other)


def _replace(tracer: Tracer, weight: ir.Value, one: _Narrow, arrays: Mapping[str, Array]) -> Array | None:
    """Let what reads the weight read what stands for it; the whole weight, if something does."""
    whole: Array | None = None
    for node, place in tuple(weight.uses()):
        if node.op_type == "Gather" and place == 0 and _takes_rows(node) and node.graph is tracer.graph:
            rows, indices = node.outputs[0], Site(tracer, node).input(1)
            taken = {name: op.Gather(array, indices, axis=0) for name, array in arrays.items()}
            array = _decode(tracer, one, taken)
            rows.replace_all_uses_with(array.value, replace_graph_outputs=True)
            tracer.graph.remove(node, safe=True)
        else:
            whole = _decode(tracer, one, arrays) if whole is None else whole
            node.replace_input_with(place, whole.value)
    for position, output in enumerate(tracer.graph.outputs):
        if output is weight:
            whole = _decode(tracer, one, arrays) if whole is None else whole
            tracer.graph.outputs[position] = whole.value
    return whole


def _takes_rows(node: ir.Node) -> bool:
    return node.attributes.get_int("axis", 0) == 0


def _decode(tracer: Tracer, one: _Narrow, arrays: Mapping[str, Array]) -> Array:
    """The weight, or some of its rows, as `edgeopt_runtime.narrow.decoded` has it."""
    entry = one.entry
    codes, dtype = arrays[entry.codes], np.dtype(one.spec.dtype)
    if entry.scales is None:
        return xp.astype(codes, dtype)
    scales = arrays[entry.scales]
    if not entry.table:
        return xp.astype(codes, dtype) * scales
    table, byte = np.asarray(entry.table, dtype), np.arange(256)
    pairs = tracer.constant(np.stack([table[byte >> 4], table[byte & 15]], axis=1))
    # Leading axes as they are: rows, or what was taken of them.
    lead, width = [0] * (codes.ndim - 1), one.spec.shape[-1]
    values = op.Reshape(op.Gather(pairs, xp.astype(codes, np.int32), axis=0), [*lead, width // _BLOCK, _BLOCK])
    return op.Reshape(values * op.Unsqueeze(scales, [-1]), [*lead, width]).with_shape((*codes.shape[:-1], width))


def _decision(model: ForwardModel, narrow: Collection[_Narrow], kind: str) -> Decision:
    errors = {one.entry.name: _error(model.parameters[one.entry.name], one.value) for one in narrow}
    worst = max(errors, key=lambda name: errors[name])
    before = sum(one.value.nbytes for one in narrow)
    after = sum(array.nbytes for one in narrow for array in one.parts.values())
    total = math.sqrt(sum(float(np.square(model.parameters[one.entry.name]).sum(dtype=np.float64)) for one in narrow))
    lost = math.sqrt(
        sum(float(np.square(model.parameters[one.entry.name] - one.value).sum(dtype=np.float64)) for one in narrow)
    )
    text = (
        f"{len(narrow)} frozen weight(s) are stored as {kind}: {before / 1e6:.1f} MB become {after / 1e6:.1f}, with "
        f"an error of {lost / (total or 1.0):.2%} (root mean square; at most {errors[worst]:.2%}, in {worst}); the "
        "model is compared with these in it"
    )
    return Decision("stored", "frozen_weights", text)


def _error(exact: NumpyArray, stored: NumpyArray) -> float:
    size = float(np.linalg.norm(exact))
    return float(np.linalg.norm(exact - stored)) / size if size else 0.0
