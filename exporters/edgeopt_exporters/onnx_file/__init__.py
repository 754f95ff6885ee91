"""ONNX files in."""

from edgeopt_exporters.onnx_file.importer import from_onnx

__all__ = ["from_onnx"]
