"""Parameters that the loss does not depend on: they keep their values, as those without a gradient do in PyTorch."""

from __future__ import annotations

from collections.abc import Collection

from edgeopt.autodiff.reach import origins
from edgeopt.errors import UnsupportedModelError
from edgeopt.training.examining.decisions import decided, listed
from edgeopt.training.forward import ForwardGraph
from edgeopt_runtime.manifest import Decision

__all__ = ["find_unreached", "reached"]


def reached(graph: ForwardGraph, outputs: Collection[str]) -> frozenset[str]:
    """The inputs of a graph from which a way of the gradient leads to one of these outputs."""
    return _sources(graph, outputs, along_gradients=True)


def find_unreached(
    graph: ForwardGraph, outputs: Collection[str], parameters: Collection[str]
) -> tuple[list[str], list[Decision]]:
    """The parameters from which no way of the gradient leads to one of some outputs, and what to say about them.

    PyTorch's optimizers skip such parameters. Updates that do not ask for a gradient, weight decay and momentum, would
    change them.

    Raises:
        UnsupportedModelError: There are no others.
    """
    found = reached(graph, outputs)
    missing = [name for name in parameters if name not in found]
    if not missing:
        return [], []
    used = _sources(graph, outputs, along_gradients=False)
    # What forward writes itself moves all the same.
    still = [name for name in missing if name not in graph.updated_parameters]
    stopped = [name for name in still if name in used]
    unused = [name for name in still if name not in used]
    reasons = []
    if stopped:
        reasons.append(f"{listed(stopped)} (behind detach, no_grad or whole numbers)")
    if unused:
        reasons.append(f"{listed(unused)} ({_outputs(outputs)} not depend on {_them(unused)})")
    why = "; ".join(reasons)
    if len(missing) == len(parameters):
        raise UnsupportedModelError(
            f"No gradient of the loss reaches a trainable parameter{f': {why}' if why else ''}. Train others with "
            "`trainable=`, let the loss read another output with `output=`, or take away what stops the gradient."
        )
    text = f"The loss has no gradient for {len(still)} parameter(s), which therefore stay as they are: {why}."
    return missing, [decided("no_gradient", still, text, warning=True)] if still else []


def _sources(graph: ForwardGraph, outputs: Collection[str], *, along_gradients: bool) -> frozenset[str]:
    results = dict(zip(graph.outputs, graph.model.graph.outputs, strict=False))
    found = (value for name in outputs for value in origins(results[name], along_gradients=along_gradients))
    return frozenset(value.name or "" for value in found if value.is_graph_input())


def _outputs(names: Collection[str]) -> str:
    listing = listed(map(repr, names))
    return f"the output {listing} does" if len(names) == 1 else f"the outputs {listing} do"


def _them(names: Collection[str]) -> str:
    return "it" if len(names) == 1 else "them"
