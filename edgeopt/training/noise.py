"""Random numbers for update rules, drawn by the bundle's own generator."""

from __future__ import annotations

import numpy as np

from edgeopt import tracing as xp
from edgeopt.errors import SignatureError, TracingError
from edgeopt.optimizers import Ingredient, LayerStatistic, Noise, Normal, Rademacher, Uniform
from edgeopt.tracing import Array, op

__all__ = ["draw"]


def draw(ingredient: Ingredient, parameter: Array) -> Array:
    """Fresh random numbers in the parameter's dtype.

    The nodes emitted are random ones of ONNX, which `edgeopt.lowering` turns into the seeded generator.

    Raises:
        SignatureError: The rule needs what only the layers of the model know.
        TracingError: The ingredient is not a kind of noise that is known here.
    """
    if isinstance(ingredient, LayerStatistic):
        raise SignatureError(
            f"The optimizer needs the mean of {ingredient.what} of each layer, and an exported update sees "
            "gradients only."
        )
    like = parameter
    if isinstance(ingredient, Noise) and ingredient.shape is not None:
        zero = parameter.tracer.constant(np.zeros((), parameter.dtype))
        like = op.Expand(zero, np.asarray(ingredient.shape, np.int64))
    if isinstance(ingredient, Normal):
        return op.RandomNormalLike(like)
    if isinstance(ingredient, Uniform):
        return op.RandomUniformLike(like)
    if isinstance(ingredient, Rademacher):
        return 1.0 - 2.0 * xp.astype(op.RandomUniformLike(like) < 0.5, parameter.dtype)
    raise TracingError(f"{ingredient!r} is no kind of noise.")
