"""Chains in the place of elementwise nodes, in the bodies of functions.

A chain is a call of a function `Chain`, `Chain_2` and so on, whose attribute says what a native kernel of that name is
to do in one pass over memory. Without such a kernel a runtime runs the function's body: the nodes that were there.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from edgeopt.fusion.analysis import Analysis, analyse
from edgeopt.fusion.chain import Chain
from edgeopt.tracing.subgraphs import remove_unused
from edgeopt.tracing.tracer import DOMAIN

__all__ = ["CHAINS", "fuse", "is_chain", "unfuse"]

#: So many names are known to native kernels; what would need more stays as it is.
CHAINS = 64

_STEM = "Chain"
_NAMES = (_STEM, *(f"{_STEM}_{number}" for number in range(2, CHAINS + 1)))

#: Fewer nodes gain nothing.
_LEAST = 2


def is_chain(function: ir.Function) -> bool:
    """Whether a function is a chain."""
    return function.domain == DOMAIN and function.name in _NAMES


def fuse(function: ir.Function, taken: Collection[str]) -> list[ir.Function]:
    """Put chains in a function's body, in place.

    Args:
        function: Its body has types and shapes, and its nodes are sorted.
        taken: The names of the model's functions.

    Returns:
        The chains that it calls now.
    """
    free = iter([name for name in _NAMES if name not in taken])
    found = analyse(function.graph)
    chains: list[ir.Function] = []
    levels = {part.level for part in found.parts.values()} | {entry.level for entry in found.reductions.values()}
    ready = [chain for level in sorted(levels) if (chain := _chain(found, level)) is not None]
    # Every body is copied before the first call is put in, since calls take the place of what others read.
    named = [(name, chain, chain.body()) for chain, name in zip(ready, free, strict=False)]
    written: dict[ir.Value, ir.Value] = {}
    for name, chain, body in named:
        chains.append(_call(function, chain, name, body, written))
    if chains:
        function.graph.opset_imports[DOMAIN] = 1
        remove_unused(function.graph)
        function.graph.sort()
    return chains


def unfuse(model: ir.Model) -> None:
    """Write the bodies of chains in their place again, in place."""
    if any(map(is_chain, model.functions.values())):
        common_passes.InlinePass(is_chain)(model)


def _chain(found: Analysis, level: int) -> Chain | None:
    chain = Chain(found, level)
    return chain if len(chain.nodes) + len(chain.reductions) >= _LEAST else None


def _call(
    function: ir.Function, chain: Chain, name: str, body: ir.Graph, written: dict[ir.Value, ir.Value]
) -> ir.Function:
    """Replace the nodes of a chain by a call, and note what it writes in the place of their values."""
    body.name = name
    constants = sorted(chain.constants, key=chain.constants.__getitem__)
    attributes = [
        ir.AttrInt64s("program", chain.program),
        ir.AttrFloat32s("constants", constants),
        ir.AttrString("of", function.name),
    ]
    inputs = [written.get(value, value) for value in chain.inputs]
    node = ir.Node(DOMAIN, name, inputs, attributes, num_outputs=len(chain.outputs), name=name.lower())
    for old, new in zip(chain.outputs, node.outputs, strict=True):
        new.name, old.name = old.name, f"{old.name}/plain"
        new.type, new.shape = old.type, old.shape
        written[old] = new
        old.replace_all_uses_with(new, replace_graph_outputs=True)
    function.graph.append(node)
    declared = [ir.Attr(attribute.name, ir.AttributeType.UNDEFINED, None) for attribute in attributes]
    return ir.Function(DOMAIN, name, graph=body, attributes=declared)
