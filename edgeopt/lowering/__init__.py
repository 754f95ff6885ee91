"""What stock ONNX Runtime lacks or does differently, said in other operators, after differentiation."""

from edgeopt.lowering.engine import lower, uses_random_numbers
from edgeopt.lowering.random import RandomStreams, kind_of_draw
from edgeopt.lowering.scalars import give_scalars_a_rank

__all__ = ["RandomStreams", "give_scalars_a_rank", "kind_of_draw", "lower", "uses_random_numbers"]
