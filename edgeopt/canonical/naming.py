"""Names that differ, of every tensor and node of a model."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common_passes

__all__ = ["fix_names"]


class _Names:
    """Existing names where there are some; a node without is named after what it computes."""

    def generate_node_name(self, node: ir.Node) -> str:
        """The preferred name of a node."""
        return node.name or f"{node.op_type}_{node.outputs[0].name}"

    def generate_value_name(self, value: ir.Value) -> str:
        """The preferred name of a tensor."""
        return value.name or "tensor"


def fix_names(model: ir.Model) -> None:
    """Give every nameless tensor and node a name, and number names that occur twice, in place.

    Inputs and outputs of the model keep theirs.
    """
    common_passes.NameFixPass(_Names())(model)
