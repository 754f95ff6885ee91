"""AdamW's update alone, on the parameters of a transformer: matrices from a width to itself and to four times it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workloads.base import Batch, Workload, generator

if TYPE_CHECKING:
    from torch import nn

__all__ = ["WORKLOADS", "gradients", "mean_square", "shapes"]

# Width and number of layers.
SIZES = {"update-1m": (288, 1), "update-10m": (528, 3), "update-50m": (832, 6)}


def shapes(name: str) -> dict[str, tuple[int, ...]]:
    """Shapes of the parameters by name."""
    width, layers = SIZES[name]
    layer = {
        **{f"attention{place}": (width, width) for place in range(4)},
        **{f"attention{place}_bias": (width,) for place in range(4)},
        "inner": (4 * width, width),
        "inner_bias": (4 * width,),
        "outer": (width, 4 * width),
        **{f"small{place}": (width,) for place in range(5)},
    }
    return {f"{key}_{number}": shape for number in range(layers) for key, shape in layer.items()}


def gradients(name: str) -> dict[str, NDArray[np.float32]]:
    """The gradient of each parameter, the same at every step."""
    random = generator(7)
    return {key: random.standard_normal(shape, dtype=np.float32) for key, shape in shapes(name).items()}


def mean_square(arrays: Mapping[str, NDArray[np.float32]]) -> float:
    """The mean square of some parameters, which tells updates apart."""
    some = [array for key, array in arrays.items() if key.endswith("_0")]
    total = sum(float(np.square(array, dtype=np.float64).sum()) for array in some)
    return total / sum(array.size for array in some)


def _build(name: str) -> nn.Module:
    import torch
    from torch import nn

    # Not ParameterDict, whose names would have a prefix.
    module = nn.Module()
    for key, shape in shapes(name).items():
        value = torch.randn(shape) / math.sqrt(math.prod(shape[1:]) or 1)
        module.register_parameter(key, nn.Parameter(value))
    return module


def _nothing(_: int) -> Batch:
    return np.zeros(0, np.float32), np.zeros(0, np.int64)


def _workload(name: str) -> Workload:
    millions = sum(math.prod(shape) for shape in shapes(name).values()) / 1e6
    return Workload(name, f"update alone, {millions:.0f} M", lambda: _build(name), _nothing, update=True)


WORKLOADS = tuple(_workload(name) for name in SIZES)
