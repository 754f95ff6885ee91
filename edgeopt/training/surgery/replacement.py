"""What a bundle becomes with another optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from edgeopt.errors import SignatureError
from edgeopt.optimizers import OptimizerLike, as_groups
from edgeopt.training.constants import with_constants
from edgeopt.training.graphs.builder import BuiltGraph
from edgeopt.training.graphs.signatures import reset_graph, view_graph
from edgeopt.training.names import DRAWS, SCHEDULE_START, SEED, STEP
from edgeopt.training.plan import group_numbers, group_provenance
from edgeopt.training.surgery.carry import Carried, carry_over
from edgeopt.training.surgery.cut import Cut
from edgeopt.training.surgery.rebuild import rebuild
from edgeopt.training.surgery.seen import seen_parameters
from edgeopt.training.surgery.slots import Slots
from edgeopt.training.updating.groups import UpdateGroup, resolve
from edgeopt.training.updating.state import State, initial_state
from edgeopt_runtime import BundleContents
from edgeopt_runtime.dtypes import DTYPES
from edgeopt_runtime.manifest import ENCODED, Manifest

__all__ = ["Carryover", "replace_optimizer"]

NumpyArray = np.ndarray[Any, Any]


class Carryover(NamedTuple):
    """What became of an optimizer's state when another one took its place; `Bundle.with_optimizer` says more."""

    kept: Mapping[str, str]
    started: tuple[str, ...]
    dropped: tuple[str, ...]
    from_view: tuple[str, ...]


def replace_optimizer(bundle: BundleContents, optimizer: OptimizerLike) -> tuple[BundleContents, Carryover]:
    """Give a bundle another optimizer; predictions, buffers, transforms, losses and metrics stay.

    Slots go on where they mean the same to both optimizers: averages of gradients and of their squares among the Adam
    family, Lion, SGD with momentum (which sums gradients, so that its buffer is scaled) and others, and everything
    among rules of one class. A rule that corrects the bias of its averages takes all of them over or none.

    Weights stay too, unless the old optimizer evaluates something else, such as an average, and the new one does not
    go on with it: then that becomes the weight.

    Parameters in frozen groups end as they are. Their gradients are no longer computed, but for the share that they
    have in a Hessian-vector product, which is computed with zeros; transforms work as if they had not been trained.

    Args:
        bundle: The bundle; it stays as it is. Gradients that are accumulated in it go on.
        optimizer: As in `compose`.

    Raises:
        SignatureError: What takes a new export: the new optimizer measures curvature or the loss, or freezes
            parameters whose gradients a transform of the user's own combines with the others'; or the old one had no
            use for gradients.
        ParameterPatternError: See `compose`.
    """
    manifest, state = bundle.manifest, _decoded(bundle)
    trained = {spec.name: state[spec.name] for spec in manifest.tensors if spec.trainable}
    groups = resolve(as_groups(optimizer), trained)
    _refuse_measurements(groups)
    whole = {name: s for name, s in manifest.signatures.items() if name not in ("reset", "view", "summary")}
    cuts = {name: Cut(manifest, name, bundle.graphs[s.file]) for name, s in whole.items()}
    rules = next((cuts[name].rules() for name in ("step", "apply") if name in cuts), {})
    seen = _as_numbers(manifest, seen_parameters(bundle))
    laid_out = _layout(manifest, groups, state)
    old, new = Slots(manifest.tensors, state), Slots(laid_out.tensors.values(), laid_out.values)
    carried = carry_over(new.of(groups), rules, old.values, seen) if rules else Carried({}, frozenset())

    moved = {name: value for name, value in seen.items() if name in trained and name not in carried.in_view}
    if moved:
        # First values of slots follow from the parameters.
        groups = resolve(as_groups(optimizer), {**trained, **moved})
        laid_out = _layout(manifest, groups, {**state, **moved})
    kept: dict[str, str] = {}
    for target, (source, factor) in carried.sources.items():
        for name, (value, origin) in new.taken(target, old, source, factor).items():
            laid_out.values[name], kept[name] = value, origin
    built = {name: rebuild(cut, laid_out, groups) for name, cut in cuts.items()}
    built |= {"reset": reset_graph(laid_out, groups, {**trained, **moved}), "view": view_graph(laid_out, groups)}
    if (summary := manifest.signatures.get("summary")) is not None:
        built["summary"] = BuiltGraph(summary, bundle.graphs[summary.file])
    built = {name: graph for name, graph in built.items() if graph.signature.outputs}
    mine = [name for name, spec in laid_out.tensors.items() if spec.role == "optimizer"]
    used = {name for source, _ in carried.sources.values() for name in old.tensors(source)}
    numbers = [spec for spec in manifest.hyperparameters if not spec.name.startswith(("optimizer.", "schedule."))]
    changed = replace(
        manifest,
        tensors=tuple(laid_out.tensors.values()),
        accumulators=tuple(laid_out.accumulators.values()),
        joined=tuple(laid_out.joined.values()),
        hyperparameters=(*group_numbers(groups), *numbers),
        signatures={name: graph.signature for name, graph in built.items()},
        producer={**manifest.producer, **group_provenance(groups)},
        files={},
    )
    graphs = {graph.signature.file: graph.model for graph in built.values()}
    return BundleContents(with_constants(changed), graphs, laid_out.values), Carryover(
        kept,
        tuple(name for name in (*mine, STEP, SCHEDULE_START) if name not in kept),
        tuple(spec.name for spec in manifest.tensors if spec.role == "optimizer" and spec.name not in used),
        tuple(moved),
    )


def _decoded(bundle: BundleContents) -> dict[str, NumpyArray]:
    return _as_numbers(bundle.manifest, bundle.state)


def _as_numbers(manifest: Manifest, state: Mapping[str, NumpyArray]) -> dict[str, NumpyArray]:
    """Tensors with bfloat16 as a type of numbers."""
    types = {spec.name: spec.dtype for spec in manifest.tensors}
    return {
        name: np.asarray(value).view(ml_dtypes.bfloat16) if types.get(name) == "bfloat16" else np.asarray(value)
        for name, value in state.items()
    }


def _refuse_measurements(groups: Sequence[UpdateGroup]) -> None:
    for group in groups:
        if (need := next(group.measurements(), None)) is not None:
            raise SignatureError(
                f"{type(group.rule).__name__} has {type(need.kind).__name__} measured in each batch, which the graphs "
                "of a finished bundle do not do; export the model anew with it."
            )


def _layout(manifest: Manifest, groups: Sequence[UpdateGroup], state: Mapping[str, NumpyArray]) -> State:
    """The new state, with its first values."""
    by_role: dict[str, dict[str, NumpyArray]] = {"parameter": {}, "buffer": {}}
    for spec in manifest.tensors:
        # Of one that is stored in fewer bits only the description is wanted.
        absent = np.broadcast_to(np.zeros((), DTYPES[spec.dtype].storage), spec.shape)
        by_role.setdefault(spec.role, {})[spec.name] = state[spec.name] if spec.constant != ENCODED else absent
    shares = [share.accumulators.keys() for share in manifest.shares[1:]]
    fresh = initial_state(by_role["parameter"], by_role["buffer"], groups, 0, shares, manifest.encoded)
    # They were laid out for what was trained first, which may be frozen now.
    weights = {share.weight for share in manifest.shares}
    accumulators = {**fresh.accumulators, **{spec.name: spec for spec in manifest.accumulators if spec.name in weights}}
    goes_on = [name for name in (SEED, DRAWS, *accumulators) if name in state]
    return State(fresh.tensors, accumulators, {**fresh.values, **{name: state[name] for name in goes_on}}, fresh.joined)
