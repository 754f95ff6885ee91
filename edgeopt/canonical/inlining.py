"""Calls of model-local functions, replaced by the functions' bodies."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from edgeopt.errors import UnsupportedModelError
from edgeopt.tracing import OPSET

__all__ = ["OLDEST_OPSET", "inline_functions"]

# ONNX Runtime promises nothing for older ones either.
OLDEST_OPSET = 7


def inline_functions(model: ir.Model) -> int:
    """Inline all functions, in place, and write on each node the opset it was written for.

    Returns:
        The newest version of the standard opset that the model or one of its functions asks for.

    Raises:
        UnsupportedModelError: That opset is too old.
    """
    parts: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    versions = [_stamp_versions(part) for part in parts]
    if min(versions) < OLDEST_OPSET:
        raise UnsupportedModelError(
            f"The model is written in opset {min(versions)}; opsets before {OLDEST_OPSET} are not understood. "
            f"Convert it with onnx.version_converter.convert_version(model, {OLDEST_OPSET})."
        )
    # The inliner wants equal imports; each node carries its own version by now.
    newest: dict[str, int] = {}
    for part in parts:
        for domain, version in part.opset_imports.items():
            newest[domain] = max(version, newest.get(domain, 0))
    for part in parts:
        part.opset_imports.update(newest)
    try:
        common_passes.InlinePass()(model)
    except (ValueError, ir.passes.PassError, ir.passes.InvariantError) as error:
        raise UnsupportedModelError(f"The functions of the model cannot be inlined: {error}") from error
    return max(versions)


def _stamp_versions(part: ir.Graph | ir.Function) -> int:
    """The version of the standard opset in a graph or function, written on each of its nodes."""
    imports = part.opset_imports
    # Two names of one domain.
    if "ai.onnx" in imports:
        imports[""] = imports.pop("ai.onnx")
    version = imports.setdefault("", OPSET)
    for node in ir.traversal.RecursiveGraphIterator(part):
        if node.domain == "ai.onnx":
            node.domain = ""
        if not node.domain and node.version is None:
            node.version = version
        # Left-out outputs at the end mean the same as fewer outputs.
        while len(node.outputs) > 1 and not node.outputs[-1].name:
            node.resize_outputs(len(node.outputs) - 1)
    return version
