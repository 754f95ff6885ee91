"""Nodes under the names that the model's author knows: the path of the module they come from."""

from __future__ import annotations

import ast

import onnx_ir as ir

from edgeopt_exporters.pytorch.module import PREFIX

__all__ = ["name_after_modules"]

# Where torch's exporter writes the path: ['', 'module', 'module.layer1', 'module.layer1.conv', 'conv2d_3'].
_SCOPES = "pkg.torch.onnx.name_scopes"


def name_after_modules(graph: ir.Graph) -> None:
    """Call each node `path.of.module/operator`, in place, so that messages and patterns speak of the model."""
    for node in graph:
        scopes = ast.literal_eval(node.metadata_props.get(_SCOPES, "[]"))
        modules = [scope for scope in scopes[:-1] if scope.startswith(PREFIX)]
        if modules and node.name:
            node.name = f"{modules[-1].removeprefix(PREFIX)}/{node.name.removeprefix('node_')}"
