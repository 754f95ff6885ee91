from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

X = (2, 3, 4)
# In float32: no operand that has a gradient.
TWICE = np.asarray([1, 1, 2, 2], np.float32)


def ints(*numbers: int) -> np.ndarray[Any, Any]:
    return np.asarray(numbers, np.int64)


def parts(axis: int, *sizes: int) -> Callable[[torch.Tensor], Any]:
    return lambda x: torch.split(x, list(sizes), axis)


def squeezed(*axes: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: torch.squeeze(x, axes)


def unsqueezed(*axes: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Axes in ascending order."""

    def reference(x: torch.Tensor) -> torch.Tensor:
        for axis in axes:
            x = x.unsqueeze(axis)
        return x

    return reference


CONCATENATED: list[tuple[list[tuple[int, ...]], int]] = [
    ([(2,), (2,)], 0),
    ([(2, 3), (2, 3)], 0),
    ([(2, 3), (2, 3), (2, 3)], 1),
    ([(2, 3, 3), (2, 3, 3)], 2),
    ([(2, 2, 3), (2, 4, 3)], 1),
    ([(2, 3, 1), (2, 3, 3), (2, 3, 2)], -1),
]
SQUEEZED: list[tuple[tuple[int, ...], list[int]]] = [
    ((1, 2, 1, 3), [0]), ((1, 2, 1, 3), [2]), ((1, 2, 1, 3), [0, 2]), ((1, 2, 1, 3), [-4, -2]),
]  # fmt: skip
UNSQUEEZED = [[0], [1, 2], [0, 2, 4]]
EXPANDED: list[tuple[tuple[int, ...], list[int]]] = [
    ((2, 3, 1), [2, 3, 4]), ((2, 3, 1), [2, 1, 1]), ((2, 3), [2, 2, 3]),
    ((1,), [2, 3]), ((1, 3, 1), [2, 1, 4]), ((3,), [3]),
]  # fmt: skip
SLICED: list[tuple[list[int], list[int], list[int], Callable[[torch.Tensor], torch.Tensor]]] = [
    ([0, 0], [2, 3], [0, 1], lambda x: 1.0 * x[0:2, 0:3]),
    ([1, 0], [2, -1], [1, 2], lambda x: 1.0 * x[:, 1:2, 0:-1]),
    ([-2], [1000], [-1], lambda x: 1.0 * x[..., -2:]),
]

CASES: list[tuple[Any, ...]] = [
    ("Split", (9,), [(9, 5)], {"axis": 0, "split": [3, 3, 3]}, parts(0, 3, 3, 3), "types", ["FLOAT"] * 3),
    ("Split", (13, 18), [(9, 5), ints(3, 3, 3)], {"axis": 0}, parts(0, 3, 3, 3), "types", ["FLOAT"] * 3),
    ("Split", (18,), [(9, 5)], {"axis": 0, "num_outputs": 3}, parts(0, 3, 3, 3), "types", ["FLOAT"] * 3, "static"),
    *(
        ("Concat", (9, 13), shapes, {"axis": axis}, lambda *x, a=axis: torch.cat(x, a))
        for shapes, axis in CONCATENATED
    ),
    ("Transpose", (7, 13), [X], {}, lambda x: x.permute(2, 1, 0)),
    *(
        ("Transpose", (7, 13), [X], {"perm": perm}, lambda x, p=perm: x.permute(*p))
        for perm in [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    ),
    *(("Squeeze", (9,), [shape], {"axes": [a % 4 for a in axes]}, squeezed(*axes)) for shape, axes in SQUEEZED),
    *(("Squeeze", (13, 20), [shape, ints(*axes)], {}, squeezed(*axes)) for shape, axes in SQUEEZED),
    *(("Unsqueeze", (9,), [(2, 3)], {"axes": axes}, unsqueezed(*axes)) for axes in UNSQUEEZED),
    *(("Unsqueeze", (13, 20), [(2, 3), ints(*axes)], {}, unsqueezed(*axes)) for axes in UNSQUEEZED),
    *(
        ("Slice", (9,), [X], {"starts": starts, "ends": ends, "axes": axes}, reference)
        for starts, ends, axes, reference in SLICED
    ),
    *(
        ("Slice", (10, 13), [X, ints(*starts), ints(*ends), ints(*axes)], {}, reference)
        for starts, ends, axes, reference in SLICED
    ),
    *(
        ("Expand", (11, 13), [shape, ints(*target)], {}, lambda x, t=target: x * torch.ones(t))
        for shape, target in EXPANDED
    ),
    *(
        ("Tile", (7, 13), [shape, ints(*repeats)], {}, lambda x, r=repeats: x.repeat(*r))
        for shape, repeats in [((3,), [2]), ((2, 2), [2, 3]), ((2, 2, 3), [1, 2, 3]), ((2, 3), [1, 1])]
    ),
    *(
        ("Flatten", (9, 13), [(2, 3, 4)], {"axis": axis}, lambda x, a=axis: x.reshape(int(np.prod(x.shape[:a])), -1))
        for axis in (-3, -2, -1, 0, 1, 2, 3)
    ),
    ("Reshape", (7, 14), [X, ints(4, -1)], {}, lambda x: x.reshape(4, 6)),
    ("Reshape", (7, 14), [X, ints(0, 12)], {}, lambda x: x.reshape(2, 12)),
    *(
        (
            "Pad", (13, 18), [X, ints(0, *begin, 0, *end)], {},
            lambda x, b=begin, e=end: functional.pad(x, (b[1], e[1], b[0], e[0])),
        )
        for begin, end in [((1, 0), (2, 1)), ((-1, 0), (0, -1)), ((1, -1), (-1, 2))]
    ),
    ("Pad", (18,), [X, ints(1, 2), None, ints(-1)], {}, lambda x: functional.pad(x, (1, 2))),
    *(
        (
            "Trilu", (14,), [(3, 4), np.asarray(k)], {} if upper is None else {"upper": upper},
            lambda x, f=torch.tril if upper == 0 else torch.triu, k=k: f(x, k),
        )
        for upper in (None, 0, 1)
        for k in range(-3, 4)
    ),
    (
        "Resize", (11, 13, 18), [(1, 2, 4, 4), np.zeros(0, np.float32), TWICE], {"mode": "linear"},
        lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"), "static",
    ),
]  # fmt: skip


def test_gradients(case: tuple[Any, ...], check_case: Callable[..., None]) -> None:
    check_case(case)
