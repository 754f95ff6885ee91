"""Which nodes are computed again together: by name, or where the fewest bytes cross between two groups."""

from __future__ import annotations

import fnmatch
from bisect import bisect, bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import onnx_ir as ir

from edgeopt.errors import ParameterPatternError
from edgeopt.recomputation.flow import Flow, size_of
from edgeopt.tracing.marks import REGION
from edgeopt.tracing.subgraphs import bodies

__all__ = ["Groups", "automatic_groups", "has_regions", "marked_groups", "named_groups", "region_group", "with_helpers"]

#: The group of each node that may be computed again. What the backward pass does not find in a group is kept.
Groups = dict[ir.Node, str]

# Below this gain a second forward pass is not worth its time.
_LEAST_GAIN = 0.1


def has_regions(graph: ir.Graph) -> bool:
    """Whether the model marks nodes that are to be computed again, as torch's checkpoints do."""
    return any(REGION in node.metadata_props for node in graph)


def marked_groups(flow: Flow) -> Groups:
    """The nodes of the forward pass that the model marks, each region a group."""
    marks = {node: node.metadata_props.get(REGION) for node in flow.forward}
    return {node: region_group(region) for node, region in marks.items() if region is not None}


def region_group(region: str) -> str:
    """The name of a marked region's group."""
    return f"region/{region}"


def named_groups(flow: Flow, patterns: Sequence[str]) -> Groups:
    """Nodes by patterns of their names (`"encoder.layer.*"`); each module that a pattern matches is a group.

    Nodes exported from torch are called `path.of.module/operator`, those of a file as the file calls them; parts of a
    name are separated by dots and slashes, and the shortest leading part that matches makes the group.

    Raises:
        ParameterPatternError: A pattern matches no node of the forward pass.
    """
    groups: Groups = {}
    matched: set[str] = set()
    for node in flow.forward:
        for prefix in _prefixes(node.name or ""):
            pattern = next((pattern for pattern in patterns if fnmatch.fnmatchcase(prefix, pattern)), None)
            if pattern is not None:
                matched.add(pattern)
                groups[node] = prefix
                break
    if missing := sorted(set(patterns) - matched):
        # Those made of several parts are the model's; the loss and constants have plain ones.
        names = [node.name for node in flow.forward if node.name and len(_prefixes(node.name)) > 1]
        raise ParameterPatternError(
            f"recompute: {', '.join(map(repr, missing))} matches no node of the forward pass. Names are such as "
            f"{', '.join(names[:5])}."
        )
    return groups


def _prefixes(name: str) -> list[str]:
    ends = [position for position, character in enumerate(name) if character in "./" and position]
    return [name[:end] for end in (*ends, len(name))]


def automatic_groups(flow: Flow) -> Groups:
    """Stretches of the forward pass, cut so that what is kept between them and the largest of them are smallest.

    The last stretch is not among them: the backward pass begins with it, so that it would be computed twice in a row.
    The scheme is that of Chen et al. 2016 (arXiv:1604.06174): kept bytes plus the bytes of the largest stretch,
    minimised over a range of budgets for one stretch.
    """
    nodes = flow.forward
    inside = [sum(size_of(value) for value in node.outputs if flow.is_read_later(value)) for node in nodes]
    spans = _spans(flow, nodes)
    crossing = _crossing(spans, len(nodes))
    total = sum(inside)
    best, least = [0, len(nodes)], float(total)
    for parts in range(2, 100):
        cuts = _cut(inside, crossing, total / parts)
        kept = sum(span.size for span in spans if bisect(cuts, span.end) > bisect_left(cuts, span.begin))
        largest = max(sum(inside[start:end]) for start, end in pairwise(cuts))
        if kept + largest < least:
            best, least = cuts, kept + largest
    if least > (1 - _LEAST_GAIN) * total:
        return {}
    stretches = list(pairwise(best))
    return {node: str(number) for number, (start, end) in enumerate(stretches[:-1]) for node in nodes[start:end]}


class _Span(NamedTuple):
    """The positions between nodes, first and last, where a tensor is there and will be read again."""

    begin: int
    end: int
    size: int


def _spans(flow: Flow, nodes: Sequence[ir.Node]) -> list[_Span]:
    position = {node: index for index, node in enumerate(nodes)}
    spans = []
    for index, node in enumerate(nodes):
        for value in node.outputs:
            last = max((position[reader] for reader in flow.readers.get(value, ()) if reader in position), default=-1)
            if value in flow.activations and last > index:
                spans.append(_Span(index + 1, last, size_of(value)))
    return spans


def _crossing(spans: Sequence[_Span], count: int) -> list[int]:
    """For each position the bytes that nodes from there on read of what nodes before it computed."""
    change = [0] * (count + 2)
    for span in spans:
        change[span.begin] += span.size
        change[span.end + 1] -= span.size
    return list(accumulate(change))


def _cut(inside: Sequence[int], crossing: Sequence[int], budget: float) -> list[int]:
    """Positions of cuts, both ends included: where a stretch has spent its budget, or half of it and it is narrower.

    From the end to the beginning, so that the last stretch, which is not computed twice, is a full one.
    """
    before = [0, *accumulate(inside)]
    cuts = [len(inside)]
    for position in reversed(range(1, len(inside))):
        end = cuts[0]
        if before[end] - before[position - 1] > budget and position < end:
            places = [p for p in range(position, end) if before[end] - before[p] >= budget / 2] or [position]
            cuts.insert(0, min(places, key=lambda p: crossing[p]))
    return [0, *cuts]


def with_helpers(flow: Flow, groups: Groups) -> Groups:
    """The groups, and in each what the backward pass would have computed from its tensors; nodes with bodies left out.

    That is what serves the backward pass alone, and what both need (a centred input, say) and is called after it.
    """
    order = {name: index for index, name in enumerate(dict.fromkeys(groups.values()))}
    forward = set(flow.forward)
    complete: Groups = {}
    for node in flow.nodes:
        if bodies(node) or node in flow.backward or not any(value in flow.activations for value in node.outputs):
            continue
        if node in groups:
            complete[node] = groups[node]
        elif node not in forward or (node.name or "").startswith("backward/"):
            producers = [value.producer() for value in flow.operands[node] if value in flow.activations]
            found = [None if producer is None else complete.get(producer) for producer in producers]
            if found and None not in found:
                complete[node] = max((name for name in found if name is not None), key=order.__getitem__)
    return complete
