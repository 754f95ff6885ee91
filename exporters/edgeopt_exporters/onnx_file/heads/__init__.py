"""The last layer of an ONNX file: where it is, the file without it, and another in its place."""

from edgeopt_exporters.onnx_file.heads.cutting import cut
from edgeopt_exporters.onnx_file.heads.replacing import replace_head

__all__ = ["cut", "replace_head"]
