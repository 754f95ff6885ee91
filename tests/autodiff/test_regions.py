from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgeopt.autodiff import backward
from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import regions
from edgeopt.errors import UnsupportedOperatorError
from edgeopt.tracing import Array, Tracer, new_graph, op

# The last one reaches beyond the image, the one before is smaller than an element.
BOXES = np.asarray([[0.3, 0.2, 4.1, 5.3], [2, 3, 5, 4], [1, 1, 1.3, 1.2], [-2, -1.5, 8.5, 9]], np.float32)
IMAGES = np.asarray([0, 1, 1, 0])


def aligned(ratio: int, half: bool, scale: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Region by region, with torch's own sampling of images."""

    def reference(x: torch.Tensor) -> torch.Tensor:
        corners = torch.tensor(BOXES, dtype=x.dtype) * scale - (0.5 if half else 0.0)
        results = []
        for image, (left, top, right, bottom) in zip(IMAGES, corners.tolist(), strict=True):
            axes, counts = [], []
            for first, last, cells, size in ((top, bottom, 2, x.shape[2]), (left, right, 3, x.shape[3])):
                cell = (last - first if half else max(last - first, 1.0)) / cells
                count = ratio or int(np.ceil(cell))
                places = torch.arange(cells)[:, None] * cell + (torch.arange(count) + 0.5) * cell / count + first
                axes.append((places.flatten().to(x.dtype), size))
                counts.append(count)
            rows, columns = torch.meshgrid(axes[0][0], axes[1][0], indexing="ij")
            grid = torch.stack([2 * columns / (x.shape[3] - 1) - 1, 2 * rows / (x.shape[2] - 1) - 1], -1)[None]
            read = functional.grid_sample(x[image : image + 1], grid, "bilinear", "border", True)
            outside = (rows < -1) | (rows > x.shape[2]) | (columns < -1) | (columns > x.shape[3])
            results.append(functional.avg_pool2d(read * ~outside, counts))
        return torch.cat(results)

    return reference


def pooled(ratio: int, half: bool, scale: float = 1.0, mode: str = "avg") -> Callable[[Array], Array]:
    coordinates = "half_pixel" if half else "output_half_pixel"
    how = {"output_height": 2, "output_width": 3, "sampling_ratio": ratio, "spatial_scale": scale, "mode": mode}
    return lambda x: op.RoiAlign(
        x, BOXES.astype(x.dtype), IMAGES, coordinate_transformation_mode=coordinates, **how
    ).with_shape((4, x.shape[1], 2, 3))


ROWS: list[tuple[Any, ...]] = [
    *(
        ("RoiAlign", aligned(ratio, half, scale), [(2, 3, 6, 7)], pooled(ratio, half, scale))
        for ratio, half, scale in ((2, True, 1.0), (2, False, 1.0), (0, True, 1.0), (0, False, 0.6))
    ),
    # torch has no mode in which the maximum is over the elements near the samples.
    *(
        ("RoiAlign", None, [(2, 2, 6, 7)], pooled(ratio, half, 0.9, "max"))
        for ratio, half in ((2, True), (0, False))
    ),
]  # fmt: skip


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == regions.__name__}
    assert rules == {row[0] for row in ROWS}


@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("count", [4, 1, 0])
def test_named_dimensions(ratio: int, mode: str, count: int, make_step: Callable[..., Any]) -> None:
    """Pooling is homogeneous, f(tx) = t f(x), so the gradient times x is the output; also where there is no region."""
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 7)).astype(np.float32)
    how = {"output_height": 2, "output_width": 3, "sampling_ratio": ratio, "mode": mode}
    dims = [("batch", 3, "height", "width"), ("regions", 4)]

    def both(x: Array, boxes: Array) -> Array:
        images = op.Expand(x.tracer.constant([0]), op.Shape(boxes, end=1))
        # The regions need a gradient for the harness to ask for.
        return op.RoiAlign(x, boxes, images, **how).with_shape(("regions", 3, 2, 3)) + 0.0 * op.ReduceSum(
            boxes, keepdims=0
        )

    cotangent = np.random.default_rng(1).standard_normal((count, 3, 2, 3)).astype(np.float32)
    output, gradient, to_boxes = make_step(both, dims).run([x, BOXES[:count]], cotangent)
    np.testing.assert_allclose((gradient * x).sum(), (output * cotangent).sum(), rtol=1e-4, atol=1e-5)
    # As in torchvision, regions are constants.
    np.testing.assert_array_equal(to_boxes, np.zeros((count, 4)))


def test_max_roi_pool_names_the_alternative() -> None:
    tracer = Tracer(new_graph("refused"))
    x = tracer.input("x", np.float32, (2, 3, 8, 8))
    y = op.MaxRoiPool(x, np.zeros((1, 5), np.float32), pooled_shape=[2, 2])
    with pytest.raises(UnsupportedOperatorError, match="RoiAlign"):
        backward(tracer, {y.value: y}, [x.value])
