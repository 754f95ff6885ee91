"""Which layers the weights belong to that a rule preconditions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import onnx_ir as ir

from edgeopt.errors import SignatureError
from edgeopt.optimizers import KroneckerFactor
from edgeopt.tracing import Array
from edgeopt.tracing.site import Site
from edgeopt.training.graphs.builder import GraphBuilder
from edgeopt.training.plan import Plan

__all__ = ["Layer", "Layers"]


class Layer(NamedTuple):
    """One use of a weight.

    Attributes:
        site: The node: a matrix product or a convolution.
        inputs_first: Whether the rows of the weight, and not its columns, meet what enters.
    """

    site: Site
    inputs_first: bool


class Layers:
    """The layers of all weights that rules ask about, found before the backward pass.

    Raises:
        SignatureError: A weight belongs to something else, or is used both as it is and transposed.
    """

    def __init__(self, builder: GraphBuilder, plan: Plan) -> None:
        owners = dict.fromkeys(need.owner for need in plan.measurements() if isinstance(need.kind, KroneckerFactor))
        self._layers = {owner: list(_uses(builder, owner, builder.state(owner), False)) for owner in owners}
        for owner, layers in self._layers.items():
            if len({layer.inputs_first for layer in layers}) > 1:
                raise _refused(owner, layers[0].site.node, "uses it transposed where another does not")

    @property
    def outputs(self) -> list[ir.Value]:
        """What leaves them, whose cotangents are needed."""
        return list(dict.fromkeys(layer.site.y.value for layers in self._layers.values() for layer in layers))

    def of(self, owner: str) -> list[Layer]:
        """Each use of a parameter."""
        return self._layers[owner]


def _uses(builder: GraphBuilder, name: str, weight: Array, transposed: bool) -> Iterator[Layer]:
    for use in weight.value.uses():
        node, position = use.node, use.idx
        site = Site(builder.tracer, node)
        kind = node.op_type if node.graph is builder.graph and not node.domain else "something in a body"
        if kind == "Identity":
            yield from _uses(builder, name, site.y, transposed)
        elif kind == "Transpose" and weight.ndim == 2:
            yield from _uses(builder, name, site.y, not transposed)
        elif kind == "Gemm" and position == 1 and not site.attr("transA", 0):
            yield Layer(site, transposed == bool(site.attr("transB", 0)))
        elif kind == "MatMul" and position == 1 and weight.ndim == 2:
            yield Layer(site, not transposed)
        elif kind == "Conv" and position == 1:
            yield Layer(site, inputs_first=False)
        else:
            raise _refused(name, node, "uses it, which is no linear layer or convolution")


def _refused(name: str, node: ir.Node, why: str) -> SignatureError:
    return SignatureError(
        f"The optimizer needs what enters and leaves the layer that {name!r} is the weight of, but the node "
        f"{node.name!r} ({node.op_type}) {why}. Give such parameters another rule, in a group: "
        f'optimizer=[Group("{name}", optimizer=AdamW()), …].'
    )
