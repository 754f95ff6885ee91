"""Surgery on ONNX files before they are exported: another last layer, or an earlier end.

`edgeopt.graph.replace_head("model.onnx", classes=5)` gives a model whose new classifier `trainable="head.*"` trains.
"""

from __future__ import annotations

from edgeopt_exporters.onnx_file.heads import cut, replace_head

__all__ = ["cut", "replace_head"]
