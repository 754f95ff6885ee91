"""Reverse mode: walk a graph backwards and add the nodes that compute gradients to it.

Everything common to all operators is here: which nodes matter, broadcasting, accumulation, and what cannot be done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx_ir as ir

from edgeopt.autodiff.accumulation import accumulate
from edgeopt.autodiff.arrays import sum_like
from edgeopt.autodiff.quantized import is_quantized, stays_quantized
from edgeopt.autodiff.registry import RULES, ZERO_DERIVATIVE, qualified_name, site_problem
from edgeopt.errors import TracingError, UnsupportedOperatorError
from edgeopt.tracing import Array, Tracer
from edgeopt.tracing.site import Site
from edgeopt.tracing.subgraphs import bodies, captured, operands

__all__ = ["backward", "dependent_values", "is_stopped"]


def backward(
    tracer: Tracer,
    seeds: Mapping[ir.Value, Array],
    wrt: Sequence[ir.Value],
    *,
    forward: ir.Graph | None = None,
) -> list[Array | None]:
    """Add to the graph the vector-Jacobian product of some of its tensors with respect to others.

    Args:
        tracer: Records what is added.
        seeds: Cotangents of output tensors; for the gradient of a scalar loss, `{loss: one}`.
        wrt: Tensors to differentiate with respect to.
        forward: The graph that holds the forward computation; that of the tracer by default. A body of this graph may
            be what the tracer records into: then the seeds may be tensors of the body.

    Returns:
        One cotangent for each tensor of `wrt`, of its dtype and shape; None where nothing depends on it.

    Raises:
        UnsupportedOperatorError: Operators on the way have no rule; it lists all of them.
    """
    nodes = list(tracer.graph if forward is None else forward)
    active = dependent_values(nodes, wrt)
    path = _nodes_on_path(nodes, set(seeds), active)
    sites = [Site(tracer, node, tuple(value in active for value in operands(node))) for node in path]
    _refuse_unsupported(sites)

    cotangents: dict[ir.Value, list[Array]] = {value: [seed] for value, seed in seeds.items()}
    singular: set[ir.Value] = set()
    with tracer.scope("backward"):
        for site in reversed(sites):
            arriving = [_accumulate(cotangents.get(value, [])) for value in site.node.outputs]
            if any(cotangent is not None for cotangent in arriving):
                site.singular = any(value in singular for value in site.node.outputs)
                _propagate(site, arriving, cotangents)
                singular.update(_singular_inputs(site))
        return [_accumulate(cotangents.get(value, [])) for value in wrt]


def _carries_gradient(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


def is_stopped(node: ir.Node) -> bool:
    """Whether the model itself lets no gradient pass here, whatever the operator."""
    return "edgeopt.stop_gradient" in node.metadata_props


def _stops(node: ir.Node) -> bool:
    return qualified_name(node) in ZERO_DERIVATIVE or is_stopped(node)


def dependent_values(nodes: Iterable[ir.Node], wrt: Iterable[ir.Value]) -> set[ir.Value]:
    """The float tensors that change when `wrt` does, and those that are quantized from such."""
    dependent = set(wrt)
    for node in nodes:
        if not _stops(node) and any(value in dependent for value in operands(node)):
            quantized = stays_quantized(node, dependent)
            dependent.update(value for value in node.outputs if quantized or _carries_gradient(value))
    return dependent


def _nodes_on_path(nodes: Sequence[ir.Node], reached: set[ir.Value], active: set[ir.Value]) -> list[ir.Node]:
    """The nodes between `wrt` and the seeded outputs, in graph order."""
    path = []
    for node in reversed(nodes):
        if _stops(node) or not any(value in reached and value in active for value in node.outputs):
            continue
        used = [value for value in operands(node) if value is not None and value in active]
        if used:
            path.append(node)
            reached.update(used)
    return path[::-1]


def _refuse_unsupported(sites: Sequence[Site]) -> None:
    by_operator: dict[tuple[str, str], list[str]] = {}
    for site in sites:
        problem = _unknown_rank(site) or site_problem(site)
        if problem is not None:
            by_operator.setdefault((qualified_name(site.node), problem), []).append(repr(site.node.name))
        for node in _differentiated_inside(site.node):
            # What a rule says of types in a body has to wait until it is differentiated.
            if qualified_name(node) not in RULES:
                problem = str(site_problem(Site(site.tracer, node)))
                by_operator.setdefault((qualified_name(node), problem), []).append(repr(node.name))
    if by_operator:
        raise UnsupportedOperatorError(
            [f"{operator} (nodes {', '.join(names)}): {why}" for (operator, why), names in by_operator.items()]
        )


def _unknown_rank(site: Site) -> str | None:
    for value, needed in zip(operands(site.node), site.needs, strict=True):
        if needed and value is not None and isinstance(value.type, ir.TensorType) and value.shape is None:
            return f"the rank of its operand {value.name!r} is not known; let the model declare its shape"
    return None


def _differentiated_inside(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes of bodies through which a gradient may have to pass."""
    for body in bodies(node):
        wrt = [value for value in (*captured(node), *body.inputs) if _carries_gradient(value)]
        for inner in _nodes_on_path(list(body), set(body.outputs), dependent_values(body, wrt)):
            yield inner
            yield from _differentiated_inside(inner)


def _accumulate(contributions: list[Array]) -> Array | None:
    if not contributions:
        return None
    contributions[:] = [accumulate(contributions)]
    return contributions[0]


# Behind these, one element that is not finite makes all of them so, and nothing is gained by keeping them apart.
_MIXING = frozenset({"Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN"})


def _singular_inputs(site: Site) -> Iterator[ir.Value]:
    """The inputs of a node whose cotangents may not be finite."""
    name = qualified_name(site.node)
    if name not in _MIXING and (site.singular or RULES[name].singular(site)):
        yield from (value for value in operands(site.node) if value is not None)


def _propagate(site: Site, arriving: list[Array | None], cotangents: dict[ir.Value, list[Array]]) -> None:
    entry = RULES[qualified_name(site.node)]
    result = entry.apply(site, *arriving)
    leaving = [result] if result is None or isinstance(result, Array) else list(result)
    for position, cotangent in enumerate(leaving):
        if cotangent is None or not site.needs[position]:
            continue
        operand = site.input(position)
        if entry.broadcasts:
            cotangent = sum_like(cotangent, operand, site.y.shape)
        fits = cotangent.dtype == operand.dtype or is_quantized(operand.value)
        if not fits or cotangent.ndim != operand.ndim:
            raise TracingError(f"The gradient rule of {site} returns {cotangent} for its input {operand}.")
        cotangents.setdefault(operand.value, []).append(cotangent)
