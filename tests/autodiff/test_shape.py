from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import shape
from edgeopt.testing import check_gradients
from edgeopt.tracing import Array, op

X = [(2, 3, 4)]


def split(lengths: list[int], used: list[int], axis: int = 1) -> Callable[[Array], Array]:
    """The sum of the pieces' squares, of those that are used."""

    def function(x: Array) -> Array:
        pieces = x.tracer.emit("Split", x, lengths, axis=axis, outputs=len(lengths))
        totals = [op.ReduceSum(pieces[i] * pieces[i], keepdims=0) for i in used]
        return totals[0] if len(totals) == 1 else op.Sum(*totals)

    return function


def split_reference(lengths: list[int], used: list[int], axis: int = 1) -> Callable[[torch.Tensor], torch.Tensor]:
    def reference(x: torch.Tensor) -> torch.Tensor:
        pieces = torch.split(x, lengths, axis)
        return torch.stack([(pieces[i] * pieces[i]).sum() for i in used]).sum()

    return reference


def sliced(starts: list[int], ends: list[int], axes: list[int] | None, steps: list[int] | None) -> Callable[[Any], Any]:
    """Through numpy's slices, which mean the same."""
    chosen = axes if axes is not None else list(range(len(starts)))
    index: list[slice] = [slice(None)] * 3
    for axis, start, end, step in zip(chosen, starts, ends, steps or [1] * len(starts), strict=True):
        # An end before the first element is None in Python.
        index[axis] = slice(start, None if step < 0 and end < -4 else end, step)
    positions = np.arange(24).reshape(2, 3, 4)[tuple(index)]
    return lambda x: x.reshape(-1)[torch.tensor(positions.copy())]


SLICES: list[tuple[list[int], list[int], list[int] | None, list[int] | None]] = [
    ([1], [3], [1], None),
    ([0, 1], [2, 3], None, None),
    ([-2], [1000], [2], None),
    ([0, 1], [-1, 3], [-1, 1], [1, 1]),
    ([0], [4], [2], [2]),
    ([3], [0], [2], [-1]),
    ([-1], [-100], [1], [-1]),
]

EXPANSIONS: list[tuple[tuple[int, ...], list[int]]] = [
    ((), [2, 3]),
    ((3,), [2, 3]),
    ((2, 1), [2, 3]),
    ((2, 1), [3, 2, 3]),
    ((2, 3), [1, 1]),
    ((1, 3, 1), [2, 1, 4]),
]

ROWS: list[tuple[Any, ...]] = [
    ("Reshape", lambda x: x.reshape(4, 6), X, lambda x: op.Reshape(x, [4, -1])),
    ("Reshape", lambda x: x.reshape(2, 12), X, lambda x: op.Reshape(x, [0, 12])),
    *(
        ("Flatten", lambda x, a=axis: x.reshape(int(np.prod(x.shape[:a])), -1), X, {"axis": axis})
        for axis in (0, 1, 2, 3)
    ),
    ("Squeeze", lambda x: x.reshape(2, 3), [(2, 1, 3, 1)], {}),
    ("Squeeze", lambda x: x.reshape(2, 3, 1), [(2, 1, 3, 1)], lambda x: op.Squeeze(x, [1])),
    ("Unsqueeze", lambda x: x.reshape(1, 2, 3, 1, 4), X, lambda x: op.Unsqueeze(x, [0, -2])),
    ("Transpose", lambda x: x.permute(2, 1, 0), X, {}),
    *(
        ("Transpose", lambda x, p=perm: x.permute(*p), X, {"perm": perm})
        for perm in [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    ),
    *(
        ("Expand", lambda x, s=target: x * torch.ones(s), [source], lambda x, s=target: op.Expand(x, s))
        for source, target in EXPANSIONS
    ),
    ("Concat", lambda a, b: torch.cat([a, b], 1), [(2, 3, 2), (2, 1, 2)], {"axis": 1}),
    ("Concat", lambda a, b, c: torch.cat([a, b, c], -1), [(2, 1), (2, 3), (2, 2)], {"axis": -1}),
    ("Concat", lambda a: 1.0 * a, [(2, 1)], {"axis": 0}),
    ("Split", split_reference([1, 2], [0, 1]), X, split([1, 2], [0, 1])),
    ("Split", split_reference([1, 1, 1], [1]), X, split([1, 1, 1], [1])),
    ("Split", split_reference([3, 1], [1], -1), X, split([3, 1], [1], -1)),
    *(
        ("Slice", sliced(*arguments), X, lambda x, a=arguments: op.Slice(x, *a))
        for arguments in SLICES
    ),
    ("Tile", lambda x: x.repeat(1, 2, 3), X, lambda x: op.Tile(x, [1, 2, 3])),
    ("Tile", lambda x: x.repeat(2), [(3,)], lambda x: op.Tile(x, [2])),
    *(
        ("Trilu", lambda x, k=k: torch.triu(x, k), [(2, 3, 4)], lambda x, k=k: op.Trilu(x, np.int64(k), upper=1))
        for k in (-3, -1, 0, 1, 3)
    ),
    *(
        ("Trilu", lambda x, k=k: torch.tril(x, k), [(3, 4)], lambda x, k=k: op.Trilu(x, np.int64(k), upper=0))
        for k in (-3, 0, 2)
    ),
    ("Trilu", torch.triu, [(3, 4)], {}),
    (
        "DepthToSpace",
        lambda x: torch.nn.functional.pixel_shuffle(x, 2),
        [(2, 8, 3, 2)],
        {"blocksize": 2, "mode": "CRD"},
    ),
    (
        "DepthToSpace",
        lambda x: torch.nn.functional.pixel_shuffle(x.reshape(2, 4, 2, 3, 2).transpose(1, 2).reshape(2, 8, 3, 2), 2),
        [(2, 8, 3, 2)],
        {"blocksize": 2},
    ),
    (
        "SpaceToDepth",
        lambda x: (
            torch.nn.functional.pixel_unshuffle(x, 2).reshape(2, 3, 4, 2, 3).transpose(1, 2).reshape(2, 12, 2, 3)
        ),
        [(2, 3, 4, 6)],
        {"blocksize": 2},
    ),
]  # fmt: skip


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == shape.__name__}
    assert rules == {row[0] for row in ROWS}


def heads(x: Array) -> Array:
    """What attention does with its projections, spelled as exporters spell it."""
    target = op.Concat(op.Shape(x, start=0, end=2), np.asarray([2, -1], np.int64), axis=0)
    return op.Transpose(op.Reshape(x, target), perm=[0, 2, 1, 3])


NAMED: list[tuple[tuple[Any, ...], list[tuple[int | str, ...]]]] = [
    (
        ("Reshape", lambda x: x.reshape(x.shape[0], x.shape[1], 2, -1).permute(0, 2, 1, 3), [(2, 3, 4)], heads),
        [("batch", "sequence", 4)],
    ),
    (("Flatten", lambda x: x.reshape(x.shape[0], -1), [(2, 3, 4)], {"axis": 1}), [("batch", 3, "sequence")]),
    (("Flatten", lambda x: x.reshape(x.shape[0] * 3, -1), [(2, 3, 4)], {"axis": 2}), [("batch", 3, "sequence")]),
    (("Squeeze", lambda x: x[:, 0], [(2, 1, 4)], lambda x: op.Squeeze(x, [1])), [("batch", 1, "sequence")]),
    (("Unsqueeze", lambda x: x[:, None], [(2, 4)], lambda x: op.Unsqueeze(x, [1])), [("batch", "sequence")]),
    (("Transpose", lambda x: x.permute(1, 0, 2), [(2, 3, 4)], {"perm": (1, 0, 2)}), [("batch", "sequence", 4)]),
    (
        ("Concat", lambda a, b: torch.cat([a, b], 1), [(2, 3), (2, 4)], {"axis": 1}),
        [("batch", "left"), ("batch", "right")],
    ),
    (("Concat", lambda a, b: torch.cat([a, b], 0), [(2, 3), (1, 3)], {"axis": 0}), [("batch", 3), (1, 3)]),
    (("Split", split_reference([1, 2], [1]), [(2, 3, 4)], split([1, 2], [1])), [("batch", 3, "sequence")]),
    (("Slice", lambda x: x[:, 1:], [(2, 3)], lambda x: op.Slice(x, [1], [100], [1])), [("batch", "sequence")]),
    (("Slice", lambda x: x[:, :-1], [(2, 3)], lambda x: op.Slice(x, [0], [-1], [1])), [("batch", "sequence")]),
    (("Slice", lambda x: x[:, ::2], [(2, 5)], lambda x: op.Slice(x, [0], [100], [1], [2])), [("batch", "sequence")]),
    (("Slice", lambda x: x[:, -2:], [(2, 3)], lambda x: op.Slice(x, [-2], [2**63 - 1], [-1])), [("batch", "sequence")]),
    (("Slice", lambda x: x[:, -5:2], [(2, 3)], lambda x: op.Slice(x, [-5], [2], [1])), [("batch", "sequence")]),
    (("Slice", lambda x: x[:, 0:], [(2, 3)], lambda x: op.Slice(x, [0], [2**31 - 1], [1])), [("batch", "sequence")]),
    (("Slice", lambda x: x[:, 1:2], [(2, 3)], lambda x: op.Slice(x, [1], [2], [1])), [("batch", 3)]),
    (("Tile", lambda x: x.repeat(1, 2), [(2, 3)], lambda x: op.Tile(x, [1, 2])), [("batch", "sequence")]),
    (
        (
            "DepthToSpace",
            lambda x: torch.nn.functional.pixel_shuffle(x, 2),
            [(2, 8, 3, 2)],
            {"blocksize": 2, "mode": "CRD"},
        ),
        [("batch", 8, "height", "width")],
    ),
    (("Trilu", torch.tril, [(2, 3, 3)], {"upper": 0}), [("batch", "sequence", "sequence")]),
    (
        ("Expand", lambda x, y: x.expand_as(y) * y, [(2, 1), (2, 3)], lambda x, y: op.Expand(x, op.Shape(y)) * y),
        [("batch", 1), ("batch", "sequence")],
    ),
    (
        ("Expand", lambda x, y: x.expand_as(y) * y, [(3,), (2, 3)], lambda x, y: op.Expand(x, op.Shape(y)) * y),
        [("sequence",), ("batch", "sequence")],
    ),
]


@pytest.mark.parametrize(("named_row", "dims"), NAMED, ids=[f"{row[0]}-{i}" for i, (row, _) in enumerate(NAMED)])
def test_named_dimensions(
    named_row: tuple[Any, ...], dims: list[tuple[int | str, ...]], check_row_with_names: Callable[..., None]
) -> None:
    sizes = (2, 3) if dims[0][0] == "batch" else (3,)
    check_row_with_names(named_row, dims, sizes)


def test_an_empty_slice_has_gradient_zero(make_step: Callable[..., Any]) -> None:
    step = make_step(lambda x: op.Slice(x, [2], [2], [1]), [(2, 3)])
    gradient = step.run([np.ones((2, 3), np.float32)], np.ones((2, 0), np.float32))[1]
    np.testing.assert_array_equal(gradient, np.zeros((2, 3)))


def test_an_empty_tensor_is_reshaped_back(make_step: Callable[..., Any]) -> None:
    """A dimension of zero is no dimension to copy."""
    step = make_step(lambda x: op.Reshape(x, np.asarray([3, 4, 0]), allowzero=1), [(0, 3, 4)])
    gradient = step.run([np.zeros((0, 3, 4), np.float32)], np.zeros((3, 4, 0), np.float32))[1]
    assert gradient.shape == (0, 3, 4)


def test_expanding_to_a_shape_that_only_the_run_knows() -> None:
    """The target may turn out to be the shape the tensor has."""
    x, one = np.random.default_rng(0).standard_normal((2, 3)), np.ones((1, 3))
    for operand, target in ((x, [2, 3]), (one, [2, 3])):
        inputs = {"x": operand, "target": np.asarray(target)}
        check_gradients(lambda x, target: op.Expand(x, target), inputs, shapes={"target": (2,)})
