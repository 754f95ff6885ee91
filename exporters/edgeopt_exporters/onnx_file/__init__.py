"""ONNX files in."""

from edgeopt_exporters.onnx_file.heads.proposals import Proposal, proposals_of
from edgeopt_exporters.onnx_file.importer import constants_of, from_onnx
from edgeopt_exporters.onnx_file.weights import Constant

__all__ = ["Constant", "Proposal", "constants_of", "from_onnx", "proposals_of"]
