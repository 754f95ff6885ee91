"""Updates in blocks, seen as what they are: the same arithmetic for whole vectors.

Large parameters are updated by a Scan over blocks that fit into a cache (`edgeopt/training/updating/blocks.py`). A
native kernel works in blocks of its own, so a program is made of whole vectors; the body that others run keeps the
Scan.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from edgeopt.fusion.instructions import INSTRUCTIONS
from edgeopt.fusion.reducing import checked
from edgeopt.fusion.values import size_of, splat
from edgeopt.tracing.subgraphs import captured

__all__ = ["unroll"]


def unroll(graph: ir.Graph) -> dict[ir.Value, ir.Value]:
    """Write each update in blocks out for whole vectors, in place, and let others read that.

    Returns:
        By each new value that others read the one of the graph that it stands for, whose nodes stay.
    """
    origins: dict[ir.Value, ir.Value] = {}
    for node in list(graph):
        if node.op_type == "Scan" and not node.domain:
            whole = _Whole(node)
            if whole.succeeds():
                for new in whole.nodes:
                    graph.insert_before(node, new)
                for old, value in whole.results.items():
                    origins[value] = old
                    value.name, old.name = old.name, f"{old.name}/blocks"
                    old.replace_all_uses_with(value, replace_graph_outputs=True)
    return origins


class _Whole:
    """The nodes of a Scan over blocks for all of them at once.

    Attributes:
        nodes: These nodes.
        results: Their results by what they stand for: outputs of the Scan, or the sum over blocks of one.
    """

    def __init__(self, scan: ir.Node) -> None:
        self.scan = scan
        self.body = scan.attributes["body"].as_graph()
        self.blocks = scan.outputs[0].shape[0] if scan.outputs[0].shape else None
        self.values: dict[ir.Value, ir.Value] = {}
        self.nodes: list[ir.Node] = []
        self.results: dict[ir.Value, ir.Value] = {}

    def succeeds(self) -> bool:
        """Whether that is all arithmetic of elements, and sums that find what is not finite."""
        if self.scan.attributes["num_scan_inputs"].as_int() != len(self.scan.inputs) or len(self.scan.attributes) > 2:
            return False
        if any(value is None or value.dtype != ir.DataType.FLOAT for value in self.scan.inputs):
            # Programs compute in float32.
            return False
        self.values = dict(zip(self.body.inputs, self.scan.inputs, strict=True))  # type: ignore[arg-type]  # all are there
        self.values.update((value, value) for value in captured(self.scan))
        checks: dict[ir.Node, Sequence[ir.Value]] = {}
        absorbed: set[ir.Node] = set()
        for node in self.body:
            found = checked(node)
            if found is not None:
                checks[node] = found[0]
                absorbed.update(found[1])
        inner = (node for node in self.body if node not in checks and node not in absorbed)
        if not all(self._is_written(node) for node in inner):
            return False
        pairs = zip(self.body.outputs, self.scan.outputs, strict=True)
        return all(self._gives(result, output, checks) for result, output in pairs)

    def _is_written(self, node: ir.Node) -> bool:
        """Write an elementwise node for whole vectors; what has the same number everywhere stays that number."""
        (output,) = node.outputs
        number = splat(output)
        if isinstance(number, float):
            self.values[output] = self._constant(np.float32(number))
        if node.op_type in ("Constant", "ConstantOfShape"):
            # Shapes, which only checks read.
            return True
        if node.domain or (node.op_type not in INSTRUCTIONS and node.op_type != "Cast"):
            return False
        if any(value not in self.values for value in node.inputs if value is not None):
            return False
        inputs = [None if value is None else self.values[value] for value in node.inputs]
        self.values[output] = self._add(node.op_type, inputs, output, list(node.attributes.values()))
        return True

    def _gives(self, result: ir.Value, output: ir.Value, checks: dict[ir.Node, Sequence[ir.Value]]) -> bool:
        node = result.producer()
        if node in checks:
            uses = list(output.uses())
            total = uses[0].node if len(uses) == 1 else None
            if total is None or total.op_type != "ReduceSum" or size_of(total.outputs[0]) != 1:
                return False
            if any(value not in self.values for value in checks[node]):
                return False
            (sum_of_all,) = total.outputs
            self.results[sum_of_all] = self._check([self.values[value] for value in checks[node]], sum_of_all)
            return True
        if result not in self.values or result in self.body.inputs:
            return False
        self.results[output] = self.values[result]
        return True

    def _check(self, values: Sequence[ir.Value], like: ir.Value) -> ir.Value:
        """As `training/graphs/finiteness.py` has it."""
        shape, rows = self._constant(np.asarray([1, -1], np.int64)), []
        for value in values:
            rows.append(self._node("Reshape", [value, shape], value.type, [1, size_of(value)]))
        total = sum(size_of(value) for value in values)
        joined = rows[0]
        if len(rows) > 1:
            joined = self._node("Concat", rows, rows[0].type, [1, total], [ir.AttrInt64("axis", 1)])
        product = self._node("Mul", [joined, self._constant(np.float32(0))], joined.type, [1, total])
        return self._node("ReduceSum", [product], like.type, [], [ir.AttrInt64("keepdims", 0)])

    def _add(
        self, op_type: str, inputs: Sequence[ir.Value | None], like: ir.Value, attributes: Sequence[ir.Attr]
    ) -> ir.Value:
        """A node whose result has a row for each block where `like` is one of a block."""
        shape = list(like.shape or [])
        return self._node(op_type, inputs, like.type, [self.blocks, *shape] if size_of(like) > 1 else shape, attributes)

    def _node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        kind: ir.TypeProtocol | None,
        shape: Sequence[object],
        attributes: Sequence[ir.Attr] = (),
    ) -> ir.Value:
        stem = f"{self.scan.name}/{op_type.lower()}_{len(self.nodes)}"
        node = ir.Node("", op_type, inputs, attributes, num_outputs=1, name=stem)
        (value,) = node.outputs
        value.name, value.type = stem, kind
        value.shape = ir.Shape([dim if isinstance(dim, int) else None for dim in shape])
        self.nodes.append(node)
        return value

    def _constant(self, number: np.generic | np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> ir.Value:
        tensor = ir.tensor(np.asarray(number))
        attribute = ir.AttrTensor("value", tensor)
        return self._node("Constant", [], ir.TensorType(tensor.dtype), list(tensor.shape), [attribute])
