"""Types of array programs: the functions that run under numpy, torch and the tracer alike.

The Array API standard has no published static types, and the three kinds of array share no base class. Both names are
therefore `Any`: they say what a parameter is for, while the contract tests say what it can do.
"""

from __future__ import annotations

from typing import Any, TypeAlias

__all__ = ["Array", "Namespace", "cast_like", "is_half", "leading"]

#: A numpy array or scalar, a torch tensor, or a traced array.
Array: TypeAlias = Any

#: A module-like object with the Array API's functions (`array_api_compat.numpy`, `edgeopt.tracing`, ...).
Namespace: TypeAlias = Any


def is_half(array: Array) -> bool:
    """Whether it is float16, of whatever library; bfloat16, which has the range of float32, is not."""
    return str(array.dtype).rpartition(".")[2] == "float16"


def cast_like(xp: Namespace, scalar: Array, array: Array) -> Array:
    """Give a 0-d array the dtype of the array it is about to meet.

    Hyperparameters are float64, and numpy promotes float32 with a 0-d float64 array to float64. Scalar factors are
    therefore computed in float64, as PyTorch computes them in Python floats, and rounded once, here.
    """
    return xp.astype(scalar, array.dtype)


def leading(vector: Array, count: int) -> Array:
    """The first elements of a vector; traced arrays have no indexing."""
    return vector.tracer.emit("Slice", vector, [0], [count]) if hasattr(vector, "tracer") else vector[:count]
