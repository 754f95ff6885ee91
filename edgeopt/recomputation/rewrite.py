"""Dropping activations: the nodes that computed them, again, behind a barrier that opens in the backward pass."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx_ir as ir

from edgeopt.recomputation.flow import Flow
from edgeopt.recomputation.groups import automatic_groups, marked_groups, named_groups, region_group, with_helpers
from edgeopt.tracing import Array, Tracer
from edgeopt.tracing.marks import WEIGHTS
from edgeopt.tracing.ordering import after, zero_after
from edgeopt.tracing.subgraphs import remove_unused

__all__ = ["recompute"]


def recompute(
    tracer: Tracer, seed: ir.Value, sources: Collection[ir.Value], *, what: str | Sequence[str] = "auto"
) -> None:
    """Change a training graph, in place, so that the backward pass computes activations anew instead of keeping them.

    The results are the same to the last bit: the same operators run on the same values, random numbers included (which
    have to be lowered by now). What a group of nodes reads from outside is kept; what it computes for itself is
    dropped. Its copy reads through a barrier, a reshape to the shape that the tensor has, which depends on a cotangent:
    without it a runtime would compute the copy right away, or see that it is no more than a repetition.

    Args:
        tracer: Records into the graph.
        seed: The tensor that the backward pass starts from; nothing of the forward pass depends on it.
        sources: The inputs that activations depend on: the batch, and what random numbers are drawn from.
        what: "auto", or patterns of node names; see `automatic_groups` and `named_groups`. With patterns, or none, the
            regions that the model marks are dropped as well.

    Raises:
        ParameterPatternError: A pattern matches no node.
    """
    flow = Flow(tracer.graph, seed, sources)
    if what == "auto":
        groups = automatic_groups(flow)
    else:
        groups = marked_groups(flow) | named_groups(flow, [what] if isinstance(what, str) else what)
    groups = with_helpers(flow, groups)
    for name in reversed(list(dict.fromkeys(groups.values()))):
        with tracer.scope(f"recompute/{name}"):
            members = [node for node, group in groups.items() if group == name]
            _Copy(tracer, flow, seed, members, of_weights=name.startswith(region_group(WEIGHTS))).make()
        # The originals that only the backward pass read are of no use now.
        remove_unused(tracer.graph)
        tracer.graph.sort()
        flow = Flow(tracer.graph, seed, sources)


class _Copy:
    """One group's second computation."""

    def __init__(
        self, tracer: Tracer, flow: Flow, seed: ir.Value, members: Collection[ir.Node], *, of_weights: bool
    ) -> None:
        self._tracer = tracer
        self._flow = flow
        self._seed = seed
        self._members = set(members)
        self._of_weights = of_weights
        self._again: dict[ir.Value, ir.Value] = {}

    def make(self) -> None:
        """Compute again what the backward pass reads, and let it read that."""
        inside = {value for node in self._members for value in node.outputs if self._is_dropped(value)}
        readers = {
            value: [node for node in self._flow.readers.get(value, ()) if node in self._flow.backward]
            for value in inside
        }
        everyone = {node for nodes in readers.values() for node in nodes}
        if not everyone:
            return
        zero = zero_after(map(self._tracer.wrap, self._openers(everyone)))
        for node in self._needed({value for value, nodes in readers.items() if nodes}, inside):
            self._copy(node, inside, zero)
        for value, nodes in readers.items():
            for node in nodes:
                for index, read in enumerate(node.inputs):
                    if read is value:
                        node.replace_input_with(index, self._again[value])

    def _is_dropped(self, value: ir.Value) -> bool:
        """Whether only the group and the backward pass read it; bodies read by name, which is not replaced here.

        What others read besides is there anyway, unless it is a weight, which they need only for a moment.
        """
        readers = self._flow.readers.get(value, ())
        ours = self._of_weights or all(node in self._members or node in self._flow.backward for node in readers)
        return ours and not value.is_graph_output() and all(value in node.inputs for node in readers)

    def _needed(self, wanted: set[ir.Value], inside: Collection[ir.Value]) -> list[ir.Node]:
        """The members that compute the wanted tensors, in order."""
        found = []
        for node in reversed(self._flow.nodes):
            if node in self._members and any(value in wanted for value in node.outputs):
                found.append(node)
                wanted.update(value for value in node.inputs if value is not None and value in inside)
        return found[::-1]

    def _openers(self, readers: Collection[ir.Node]) -> list[ir.Value]:
        """What has to be there before the copy may run.

        The last cotangent that the readers wait for anyway; and whatever else the backward pass can finish before it
        gets there, weight gradients above all. Left to itself, a runtime may put those off to the end, and with them
        the release of all that they read.
        """
        behind = self._flow.descendants(readers)
        order = {value: index for index, node in enumerate(self._flow.nodes) for value in node.outputs}
        read = {value for node in behind for value in self._flow.operands[node] if value in self._flow.cotangents}
        waiting = [value for value in read if value.producer() not in behind and _is_float(value)]
        trigger = max(waiting, key=lambda value: order.get(value, -1), default=self._seed)
        before = set(self._flow.ancestors({trigger}))
        aside = {node for node in self._flow.backward if node not in behind and node not in before}
        ends = [
            value
            for node in self._flow.nodes
            if node in aside
            for value in node.outputs
            if _is_float(value) and not any(reader in aside for reader in self._flow.readers.get(value, ()))
        ]
        # New running statistics too, which belong to the forward pass.
        ends += [v for n in self._flow.forward if n not in before for v in n.outputs if v.is_graph_output()]
        return [trigger, *ends]

    def _read(self, value: ir.Value, zero: Array) -> ir.Value:
        """What a copy reads in place of a tensor: parameters as they are, activations behind the barrier."""
        if value in self._flow.activations and value not in self._again:
            self._again[value] = after(self._tracer.wrap(value), zero).value
        return self._again.get(value, value)

    def _copy(self, node: ir.Node, inside: Collection[ir.Value], zero: Array) -> None:
        inputs = [None if value is None else self._read(value, zero) for value in node.inputs]
        outputs = [
            ir.Value(name=self._tracer.fresh_name(value.name or "value"), type=value.type, shape=value.shape)
            for value in node.outputs
        ]
        attributes = list(node.attributes.values())
        copy = ir.Node(node.domain, node.op_type, inputs, attributes, outputs=outputs, name=outputs[0].name)
        self._tracer.graph.append(copy)
        # An output that is kept is read where it is, even if the copy computes it as well.
        self._again.update((old, new) for old, new in zip(node.outputs, outputs, strict=True) if old in inside)


def _is_float(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()
