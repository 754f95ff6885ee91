from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgeopt.autodiff import backward
from edgeopt.errors import UnsupportedOperatorError
from edgeopt.tracing import Array, Tracer, new_graph, op

NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
LINEAR = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
CORNERS = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
CUBIC = {"mode": "cubic", "coordinate_transformation_mode": "half_pixel", "cubic_coeff_a": -0.75}


def by_scales(scales: Sequence[float], how: dict[str, Any]) -> Callable[[Array], Array]:
    return lambda x: op.Resize(x, None, np.asarray([1, 1, *scales], np.float32), **how)


def to_sizes(sizes: Sequence[int], how: dict[str, Any]) -> Callable[[Array], Array]:
    return lambda x: op.Resize(x, None, None, np.asarray([2, 3, *sizes], np.int64), **how)


def torchs(mode: str, **how: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: functional.interpolate(x, mode=mode, **how)


IMAGE, LINE = [(2, 3, 4, 5)], [(2, 3, 5)]

ROWS: list[tuple[Any, ...]] = [
    ("Resize", torchs("nearest", scale_factor=2), IMAGE, by_scales([2, 2], NEAREST)),
    ("Resize", torchs("nearest", scale_factor=(1, 3)), IMAGE, by_scales([1, 3], NEAREST)),
    ("Resize", torchs("nearest", scale_factor=2), LINE, by_scales([2], NEAREST)),
    ("Resize", torchs("nearest", size=(7, 3)), IMAGE, to_sizes([7, 3], NEAREST)),
    ("Resize", torchs("bilinear", scale_factor=2), IMAGE, by_scales([2, 2], LINEAR)),
    ("Resize", torchs("bilinear", size=(7, 3)), IMAGE, to_sizes([7, 3], LINEAR)),
    ("Resize", torchs("bilinear", size=(7, 3), align_corners=True), IMAGE, to_sizes([7, 3], CORNERS)),
    ("Resize", torchs("linear", size=8), LINE, to_sizes([8], LINEAR)),
    ("Resize", torchs("bicubic", scale_factor=2), IMAGE, by_scales([2, 2], CUBIC)),
    ("Resize", torchs("trilinear", scale_factor=2), [(1, 2, 2, 3, 2)], by_scales([2, 2, 2], LINEAR)),
    ("Resize", lambda x: 1.0 * x, IMAGE, by_scales([1, 1], LINEAR)),
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


@pytest.mark.parametrize("how", [NEAREST, LINEAR], ids=["nearest", "linear"])
def test_a_named_batch(how: dict[str, Any], check_row_with_names: Callable[..., None]) -> None:
    mode = "nearest" if how is NEAREST else "bilinear"
    row = ("Resize", torchs(mode, scale_factor=2), IMAGE, by_scales([2, 2], how))
    check_row_with_names(row, [("batch", 3, 4, 5)])


def test_repeated_elements_need_no_known_size(check_row_with_names: Callable[..., None]) -> None:
    row = ("Resize", torchs("nearest", scale_factor=2), IMAGE, by_scales([2, 2], NEAREST))
    check_row_with_names(row, [("batch", 3, "height", "width")])


@pytest.mark.parametrize(
    ("resized", "reason"),
    [
        (by_scales([2, 2], LINEAR), "not known before the run"),
        (to_sizes([8, 8], {**LINEAR, "keep_aspect_ratio_policy": "not_larger"}), "aspect ratio"),
    ],
    ids=["size", "aspect ratio"],
)
def test_what_is_refused(resized: Callable[[Array], Array], reason: str) -> None:
    tracer = Tracer(new_graph("refused"))
    x = tracer.input("x", np.float32, (2, 3, "height", "width"))
    y = resized(x)
    with pytest.raises(UnsupportedOperatorError, match=reason):
        backward(tracer, {y.value: y}, [x.value])
