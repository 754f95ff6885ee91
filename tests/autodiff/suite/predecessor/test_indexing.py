from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

X = (4, 2, 3, 2)


def gathered(indices: Any, axis: int) -> tuple[Any, ...]:
    chosen = np.asarray(indices)

    def reference(x: torch.Tensor) -> torch.Tensor:
        positive = torch.tensor(chosen % x.shape[axis])
        taken = torch.index_select(x, axis, positive.reshape(-1))
        return taken.reshape(*x.shape[:axis], *positive.shape, *x.shape[axis + 1 :])

    # Negative indices came with opset 11.
    return ("Gather", (11, 13) if (chosen < 0).any() else (7, 13), [X, chosen], {"axis": axis}, reference)


def gathered_nd(indices: Any, batch_dims: int) -> tuple[Any, ...]:
    chosen = torch.tensor(np.asarray(indices))

    def reference(x: torch.Tensor) -> torch.Tensor:
        """Entry by entry of the batch."""
        if not batch_dims:
            return x[tuple(chosen.movedim(-1, 0))]
        flat = x.reshape(-1, *x.shape[batch_dims:])
        places = chosen.reshape(-1, *chosen.shape[batch_dims:])
        taken = torch.stack([entry[tuple(place.movedim(-1, 0))] for entry, place in zip(flat, places, strict=True)])
        return taken.reshape(*x.shape[:batch_dims], *taken.shape[1:])

    return ("GatherND", (12, 13), [(2, 2, 3), chosen.numpy()], {"batch_dims": batch_dims}, reference)


def elements(shape: tuple[int, ...], indices: Any, axis: int) -> tuple[Any, ...]:
    chosen = np.asarray(indices)

    def reference(x: torch.Tensor) -> torch.Tensor:
        return torch.gather(x, axis, torch.tensor(chosen % x.shape[axis]))

    return ("GatherElements", (11, 13), [shape, chosen], {"axis": axis}, reference)


def scattered(shape: tuple[int, ...], indices: Any, axis: int) -> tuple[Any, ...]:
    chosen = np.asarray(indices)

    def reference(x: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        return torch.scatter(x, axis, torch.tensor(chosen), updates)

    return ("ScatterElements", (11, 18), [shape, chosen, chosen.shape], {"axis": axis}, reference)


def scattered_nd(shape: tuple[int, ...], indices: Any) -> tuple[Any, ...]:
    places = np.asarray(indices)
    updates = (*places.shape[:-1], *shape[places.shape[-1] :])

    def reference(x: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        return x.index_put(tuple(torch.tensor(places).movedim(-1, 0)), updates)

    return ("ScatterND", (11, 18), [shape, places, updates], {}, reference)


def largest(axis: int, count: int, **how: int) -> tuple[Any, ...]:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return torch.topk(x, count, axis, bool(how.get("largest", 1))).values

    inputs = [(2, 3, 4), np.asarray([count])]
    return ("TopK", (11,), inputs, {"axis": axis, **how}, reference, "types", ["FLOAT", "INT64"])


CASES: list[tuple[Any, ...]] = [
    gathered([0, 1, 3], 0),
    gathered([0, 1, 1, 3, 0], 0),
    gathered([0, 1, 0], 1),
    gathered([[0, 1], [2, 0]], 2),
    gathered([-1, -3, 0], 2),
    gathered_nd([[0, 1], [1, 0], [0, 1]], 0),
    gathered_nd([[[1], [0]], [[0], [0]]], 0),
    gathered_nd([[1], [0]], 1),
    gathered_nd([[[2], [0]], [[1], [1]]], 2),
    elements((3, 3), [[0, 2, 1]], 0),
    elements((3, 3), [[0, 0], [2, 1], [1, 1]], 1),
    elements((2, 2), [[0, 0], [1, 0]], 1),
    elements((3,), [2, 0, 2, -1], 0),
    elements((2, 3, 2), [[[0, 1], [2, 2], [0, 0]], [[1, 1], [0, 2], [2, 0]]], 1),
    scattered((3, 3), [[1, 0, 2], [0, 2, 1]], 0),
    scattered((1, 5), [[1, 3]], 1),
    scattered((2, 3), [[2, 0], [0, 1]], 1),
    scattered_nd((8,), [[4], [3], [1], [7]]),
    scattered_nd((2, 2), [[0, 0], [1, 1]]),
    scattered_nd((2, 2), [[1], [0]]),
    scattered_nd((2, 2, 2), [[[0, 1]], [[1, 0]]]),
    scattered_nd((2, 2, 2), [[1, 0, 1], [0, 1, 0]]),
    scattered_nd((4, 3), [[2], [0]]),
    largest(-1, 2),
    largest(1, 1),
    largest(0, 2, largest=0),
]


def test_gradients(case: tuple[Any, ...], check_case: Callable[..., None]) -> None:
    check_case(case)
