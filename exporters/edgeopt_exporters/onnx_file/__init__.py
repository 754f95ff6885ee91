"""ONNX files in."""

from edgeopt_exporters.onnx_file.importer import constants_of, from_onnx

__all__ = ["constants_of", "from_onnx"]
