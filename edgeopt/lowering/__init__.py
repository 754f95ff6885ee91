"""What stock ONNX Runtime lacks or does differently, said in other operators, after differentiation."""

from edgeopt.lowering.engine import lower, uses_random_numbers

__all__ = ["lower", "uses_random_numbers"]
