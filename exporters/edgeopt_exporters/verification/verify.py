"""The check behind every export: the finished graphs beside the model, at the examples' sizes and at others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from edgeopt.bundle import Bundle
from edgeopt.lowering import uses_random_numbers
from edgeopt.optimizers import as_groups
from edgeopt.training import ForwardModel, compose
from edgeopt.training.plan import select_trainable
from edgeopt.training.updating.groups import not_frozen
from edgeopt_exporters.verification.check import Check, Problem
from edgeopt_exporters.verification.quartile import drawing_quartiles, with_quartiles
from edgeopt_exporters.verification.reference import Reference, ReferenceFailed
from edgeopt_runtime.errors import UnsupportedVersionError
from edgeopt_runtime.manifest import Decision
from edgeopt_runtime.narrow import decoded

__all__ = ["Verdict", "verify"]


@dataclass(frozen=True)
class Verdict:
    """What a check found.

    Attributes:
        decisions: What was compared, and what was not and why.
        unproven: Symbolic dimensions that the model, or the graphs, do not have other sizes of, with the reason.
    """

    decisions: tuple[Decision, ...]
    unproven: Mapping[str, str] = field(default_factory=dict)


def verify(bundle: Bundle, forward: ForwardModel, settings: Mapping[str, Any], reference: Reference) -> Verdict:
    """Compare a bundle with the model that it was made of.

    `predict` and `accumulate` run on ONNX Runtime: outputs, loss, buffers and parameters that the forward pass writes,
    and the gradient of every trainable parameter must equal the model's but for rounding; and again where every
    symbolic dimension has another size. Random numbers are the lower quartile of their distribution on both sides.

    Args:
        bundle: What was exported.
        forward: What it was composed of.
        settings: The other arguments of `compose`.
        reference: The model.

    Raises:
        ExportDifferenceError: Something differs at the examples' own sizes; it lists what.
    """
    checked = _without_randomness(bundle, forward, settings)
    written = {port.tensor for port in checked.manifest.signatures["accumulate"].outputs}
    stored = decoded_weights(bundle)
    reference = reference.with_values(stored) if stored else reference
    reference = reference.with_frozen([name for name in forward.train.updated_buffers if name not in written])
    selected = {name: forward.parameters[name] for name in select_trainable(forward, settings.get("trainable"))}
    asked = not_frozen(as_groups(settings["optimizer"]), selected)
    check = Check(checked, forward, settings["loss"], settings.get("output"), asked, reference)
    try:
        check.compare({})
    except (ReferenceFailed, UnsupportedVersionError) as error:
        return Verdict((Decision("unchecked", "model", f"not compared with the model: {error}", warning=True),))
    tried, unproven = _other_sizes(check, reference.sizes)
    said = Decision("checked", "model", "outputs, loss, state and gradients equal the model's on the examples")
    return Verdict((said, *(_proof(name, reference.sizes[name], size) for name, size in tried.items())), unproven)


def decoded_weights(bundle: Bundle) -> dict[str, NDArray[Any]]:
    """What the graphs compute with in place of parameters that are stored in fewer bits."""
    specs = {spec.name: spec for spec in bundle.manifest.tensors}
    return {entry.name: decoded(entry, specs[entry.name], bundle.state) for entry in bundle.manifest.encoded}


def _without_randomness(bundle: Bundle, forward: ForwardModel, settings: Mapping[str, Any]) -> Bundle:
    """The bundle, or one with the same graphs, of which those that draw random numbers draw quartiles."""
    modes = {"accumulate": forward.train.model.graph, "predict": forward.evaluate.model.graph}
    random = [bundle.manifest.signatures[name].file for name, graph in modes.items() if uses_random_numbers(graph)]
    fixed = {file: drawing_quartiles(bundle.contents().graphs[file]) for file in random}
    graphs = {file: graph for file, graph in fixed.items() if graph is not None}
    if len(graphs) == len(fixed):
        return replace(bundle, graphs={**bundle.graphs, **graphs})
    other = replace(forward, train=with_quartiles(forward.train), evaluate=with_quartiles(forward.evaluate))
    return Bundle.of(compose(other, **settings, signatures=("accumulate", "predict")))


def _other_sizes(check: Check, sizes: Mapping[str, int]) -> tuple[dict[str, int], dict[str, str]]:
    """Other sizes at which everything was equal, and the dimensions for which there is none, each with the reason."""
    if not sizes:
        return {}, {}
    together = _grown(check, sizes)
    if not isinstance(together, Problem):
        return together, {}
    if len(sizes) == 1:
        return {}, dict.fromkeys(sizes, together.reason)
    alone = {name: _grown(check, {name: size}) for name, size in sizes.items()}
    unproven = {name: found.reason for name, found in alone.items() if isinstance(found, Problem)}
    if not unproven:
        # Each may change by itself, but not all of them: nothing is promised then.
        return {}, dict.fromkeys(sizes, together.reason)
    return {name: found[name] for name, found in alone.items() if not isinstance(found, Problem)}, unproven


def _grown(check: Check, sizes: Mapping[str, int]) -> dict[str, int] | Problem:
    """Larger sizes at which everything is equal: one more; or twice as many, if the model itself refuses one more."""
    problem = None
    for tried in ({name: size + 1 for name, size in sizes.items()}, {name: 2 * size for name, size in sizes.items()}):
        problem = check.problem_at(tried)
        if problem is None:
            return tried
        if not problem.of_model:
            break
    return problem or Problem("there is no other size", of_model=True)


def _proof(name: str, size: int, other: int) -> Decision:
    return Decision("symbolic", name, f"{name} is symbolic: everything equals the model's at {size} and at {other}")
