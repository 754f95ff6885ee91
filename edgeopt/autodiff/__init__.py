"""Reverse-mode differentiation of ONNX graphs: ONNX in, ONNX out."""

from edgeopt.autodiff import rules as _rules  # noqa: F401  # fills the tables
from edgeopt.autodiff.engine import backward
from edgeopt.autodiff.linearization import Linearization
from edgeopt.autodiff.registry import REFUSED, RULES, ZERO_DERIVATIVE, refuse, rule, zero_derivative

__all__ = ["REFUSED", "RULES", "ZERO_DERIVATIVE", "Linearization", "backward", "refuse", "rule", "zero_derivative"]
