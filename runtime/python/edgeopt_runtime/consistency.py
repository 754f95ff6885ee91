"""Whether the parts of a manifest fit together: references, names used twice, kinds that a graph may not have."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, NoReturn

from edgeopt_runtime.dtypes import DTYPES
from edgeopt_runtime.errors import ManifestError
from edgeopt_runtime.manifest import (
    ENCODED,
    GraphInput,
    GraphOutput,
    Manifest,
    Signature,
    TensorSpec,
    counts_draws,
    is_share,
)
from edgeopt_runtime.narrow import parts_fit

__all__ = ["check_consistency"]

# What each graph may give back. Only `predict` gives arrays; of the state neither it nor `evaluate` changes more than
# the count of random numbers drawn.
OUTPUT_KINDS = {
    "step": ("state", "metric", "weight", "sum", "check"),
    "accumulate": ("state", "metric", "weight", "sum", "check"),
    "apply": ("state", "metric", "check"),
    "evaluate": ("state", "metric", "weight", "sum"),
    "summary": ("metric",),
    "predict": ("state", "output"),
    "hessian_vector": ("state", "metric"),
    "reset": ("state",),
    "view": ("state",),
    "merge": ("merged",),
    "predict_merged": ("state", "output"),
}

# What reads no batch.
WITHOUT_BATCH = ("apply", "reset", "view", "summary", "merge")


def check_consistency(manifest: Manifest) -> None:
    """Check what no single field can show.

    Raises:
        ManifestError: Names that clash or lead nowhere; the message says which.
    """
    # State, batches and hyperparameters are inputs of the same graphs and so share one set of names.
    _unique(
        "tensors, accumulators, joined, hyperparameters and inputs",
        [
            *(spec.name for spec in (*manifest.tensors, *manifest.accumulators)),
            *(entry.name for entry in manifest.joined),
            *(number.name for number in manifest.hyperparameters),
            *(spec.name for spec in manifest.inputs),
        ],
    )
    _unique("outputs", (output.name for output in manifest.outputs))
    tensors = {spec.name: spec for spec in manifest.tensors}
    for spec in (*manifest.tensors, *manifest.accumulators):
        _check_owner(spec, tensors)
    _check_sizes(manifest)
    _check_joined(manifest)
    _check_encoded(manifest)
    for alias, name in manifest.aliases.items():
        if name not in tensors or tensors[name].role not in ("parameter", "buffer"):
            _fail(f"aliases.{alias}", f"is no other name of a parameter or buffer: there is no {name!r} among them")
        if alias in tensors:
            _fail(f"aliases.{alias}", "is the name of another tensor, too")
    if not manifest.signatures:
        _fail("signatures", "names no graph")
    _check_adapters(manifest, tensors)
    names = _Names.of(manifest)
    for name, signature in manifest.signatures.items():
        _check_inputs(f"signatures.{name}", name, signature, names)
        _check_outputs(f"signatures.{name}", name, signature, names)
    _check_summary(manifest)


def _check_summary(manifest: Manifest) -> None:
    """Nothing gives sums but those that `summary` makes numbers of, and `evaluate` gives them all."""
    summary = manifest.signatures.get("summary")
    wanted = set() if summary is None else {port.name for port in summary.inputs}
    for name, signature in manifest.signatures.items():
        unknown = {port.name for port in signature.outputs if port.kind == "sum"} - wanted
        if unknown:
            _fail(f"signatures.{name}.outputs", f"has the sum {min(unknown)!r}, of which summary makes nothing")
    if summary is not None and "evaluate" in manifest.signatures:
        given = {port.name for port in manifest.signatures["evaluate"].outputs if port.kind in ("sum", "weight")}
        if not wanted <= given:
            _fail("signatures.summary.inputs", f"wants the sum {min(wanted - given)!r}, which evaluate does not give")


class _Names(NamedTuple):
    """What ports may name, as sets made once: a manifest may have as many ports as tensors."""

    memory: frozenset[str]
    parameters: frozenset[str]
    constants: frozenset[str]
    counts: frozenset[str]
    hyperparameters: frozenset[str]
    model_inputs: frozenset[str]
    loss_inputs: frozenset[str]
    metric_inputs: frozenset[str]
    outputs: frozenset[str]
    merged: frozenset[str]

    @classmethod
    def of(cls, manifest: Manifest) -> _Names:
        return cls(
            memory=frozenset(spec.name for spec in manifest.memory),
            parameters=frozenset(spec.name for spec in manifest.tensors if spec.role == "parameter"),
            constants=frozenset(spec.name for spec in manifest.constants),
            counts=frozenset(spec.name for spec in manifest.tensors if counts_draws(spec)),
            hyperparameters=frozenset(spec.name for spec in manifest.hyperparameters),
            model_inputs=frozenset(spec.name for spec in manifest.inputs if spec.kind == "model"),
            loss_inputs=frozenset(spec.name for spec in manifest.inputs if spec.kind == "loss"),
            metric_inputs=frozenset(spec.name for spec in manifest.inputs if spec.kind == "metric"),
            outputs=frozenset(spec.name for spec in manifest.outputs),
            merged=frozenset(port.name for port in manifest.signatures["merge"].outputs if port.kind == "merged")
            if "merge" in manifest.signatures
            else frozenset(),
        )


def _fail(where: str, problem: str) -> NoReturn:
    raise ManifestError(f"manifest.json: `{where}` {problem}.")


def _unique(where: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            _fail(where, f"use the name {name!r} twice")
        seen.add(name)


def _check_owner(spec: TensorSpec, tensors: Mapping[str, TensorSpec]) -> None:
    where = f"{'accumulators' if spec.role == 'accumulator' else 'tensors'}: {spec.name}"
    owner = tensors.get(spec.parameter) if spec.parameter is not None else None
    if spec.parameter is not None and (owner is None or owner.role != "parameter"):
        _fail(where, f"belongs to {spec.parameter!r}, which is not a parameter")
    if spec.trainable and spec.role != "parameter":
        _fail(where, "is trainable but not a parameter")
    if spec.role in ("seed", "counter") and DTYPES[spec.dtype].storage.kind not in "iu":
        _fail(where, f"is a {spec.role} and must be of a type of whole numbers, not {spec.dtype}")
    if spec.constant and (spec.trainable or spec.role not in ("parameter", "buffer")):
        _fail(where, "is constant, which only a buffer or a parameter that does not train can be")
    summed = spec.role == "accumulator" and (spec.slot is None or is_share(spec))
    if summed and spec.shape != (owner.shape if owner is not None else ()):
        _fail(where, "must have the shape of its parameter, or none without a parameter")


def _check_adapters(manifest: Manifest, tensors: Mapping[str, TensorSpec]) -> None:
    """Each adapter has a name of its own, and holds parameters that there are."""
    _unique("adapters", (spec.name for spec in manifest.adapters))
    for spec in manifest.adapters:
        _unique(f"adapters: {spec.name}", (entry.key for entry in spec.tensors))
        for entry in spec.tensors:
            if entry.tensor not in tensors or tensors[entry.tensor].role != "parameter":
                _fail(f"adapters: {spec.name}", f"has the tensor {entry.tensor!r}, which is not a parameter")


def _check_sizes(manifest: Manifest) -> None:
    """Accumulators are the ones whose size no file vouches for: a few times the state, and room for sketches."""
    stored, summed = (
        sum(math.prod(spec.shape) for spec in specs) for specs in (manifest.tensors, manifest.accumulators)
    )
    if summed > 8 * stored + 2**20:
        _fail("accumulators", f"have {summed} elements, which is far more than the {stored} of the state")


def _check_joined(manifest: Manifest) -> None:
    specs = {spec.name: spec for spec in (*manifest.tensors, *manifest.accumulators)}
    _unique("joined", (member for entry in manifest.joined for member in entry.members))
    for entry in manifest.joined:
        where = f"joined: {entry.name}"
        if not entry.members:
            _fail(where, "has no members")
        for member in entry.members:
            if member not in specs:
                _fail(where, f"has the member {member!r}, and there is no such tensor")
        kinds = {(specs[member].role, specs[member].dtype) for member in entry.members}
        if len(kinds) > 1 or specs[entry.members[0]].role not in ("optimizer", "accumulator"):
            _fail(where, "must have members of one dtype that are all optimizer state, or all accumulators")


def _check_encoded(manifest: Manifest) -> None:
    tensors = {spec.name: spec for spec in manifest.tensors}
    _unique("encoded", (name for entry in manifest.encoded for name in (entry.name, *entry.parts)))
    for entry in manifest.encoded:
        where = f"encoded: {entry.name}"
        spec = tensors.get(entry.name)
        if spec is None or spec.constant != ENCODED or spec.role != "parameter":
            _fail(where, "is not a parameter that says so of itself")
        for part in entry.parts:
            if part not in tensors or tensors[part].constant in (None, ENCODED) or tensors[part].role != "buffer":
                _fail(where, f"is stored in {part!r}, and there is no constant buffer of that name")
        if not parts_fit(entry, spec, tensors):
            _fail(where, "has parts whose dtypes and shapes do not make such a parameter")
    listed = {entry.name for entry in manifest.encoded}
    if alone := next(
        (spec.name for spec in manifest.tensors if spec.constant == ENCODED and spec.name not in listed), None
    ):
        _fail(f"tensors: {alone}", "is said to be encoded, but `encoded` does not say how")


def _check_inputs(where: str, name: str, signature: Signature, names: _Names) -> None:
    where = f"{where}.inputs"
    known = {
        "state": names.memory,
        "hyper": names.hyperparameters,
        "batch": _batch(name, names),
        "merged": names.merged if name == "predict_merged" else frozenset(),
        "sum": frozenset(port.name for port in signature.inputs) if name == "summary" else frozenset(),
    }
    _unique(where, (port.name for port in signature.inputs))
    for port in signature.inputs:
        if port.kind == "vector":
            _check_vector(where, name, port, names)
            if any(port.name in others for others in known.values()):
                _fail(where, f"has the vector {port.name!r}, which is also the name of another input")
        elif port.name not in known[port.kind]:
            _fail(where, f"wants {port.name!r}, and there is no {port.kind} input of that name")
        elif port.tensor is not None:
            _fail(where, f"has {port.name!r} with `tensor`, which only vectors have")


def _batch(name: str, names: _Names) -> frozenset[str]:
    """The arrays of a batch that a graph may take."""
    if name in WITHOUT_BATCH:
        return frozenset()
    if name in ("predict", "predict_merged"):
        return names.model_inputs
    known = names.model_inputs | names.loss_inputs
    return known | names.metric_inputs if name == "evaluate" else known


def _check_vector(where: str, name: str, port: GraphInput, names: _Names) -> None:
    if name != "hessian_vector":
        _fail(where, f"has the vector {port.name!r}, which only hessian_vector takes")
    if port.tensor not in names.parameters:
        _fail(where, f"has the vector {port.name!r} for {port.tensor!r}, which is not a parameter")


def _check_outputs(where: str, name: str, signature: Signature, names: _Names) -> None:
    where = f"{where}.outputs"
    weights = {port.name for port in signature.outputs if port.kind == "weight"}
    _unique(where, (port.name for port in signature.outputs))
    _unique(where, (port.tensor for port in signature.outputs if port.tensor is not None))
    for port in signature.outputs:
        if port.kind not in OUTPUT_KINDS[name]:
            _fail(where, f"has {port.name!r} of kind {port.kind}, which {name} cannot give")
        if port.kind == "state" and port.tensor not in names.memory:
            _fail(where, f"replaces the tensor {port.tensor!r} by {port.name!r}, and there is no such tensor")
        if port.kind == "state" and port.tensor in names.constants:
            _fail(where, f"replaces the tensor {port.tensor!r}, which is constant")
        if (
            port.kind == "state"
            and name in ("evaluate", "predict", "predict_merged")
            and port.tensor not in names.counts
        ):
            _fail(where, f"replaces the tensor {port.tensor!r}, and {name} changes nothing but the count of draws")
        if port.kind == "output" and port.name not in names.outputs:
            _fail(where, f"has {port.name!r}, which is not among the model's outputs")
        _check_links(where, name, port, weights)


def _check_links(where: str, name: str, port: GraphOutput, weights: set[str]) -> None:
    if port.kind != "state" and port.tensor is not None:
        _fail(where, f"has {port.name!r} with `tensor`, which only state outputs have")
    if port.kind != "metric" and port.weight is not None:
        _fail(where, f"has {port.name!r} with `weight`, which only metrics have")
    if port.kind == "metric" and port.weight not in (weights if name == "evaluate" else {*weights, None}):
        _fail(where, f"has the metric {port.name!r} without a weight among the outputs")
