from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

BOTH = (11, 13)
PRODUCTS: list[list[tuple[int, ...]]] = [
    [(2, 2), (2, 3)],
    [(2, 3, 4), (2, 4, 4)],
    [(2, 3, 4), (4, 4)],
    [(2, 3), (3, 3, 4)],
    [(2, 3, 4, 5), (2, 3, 5, 5)],
    [(2, 3, 4, 5), (5, 5)],
    [(2, 3, 4, 5), (3, 5, 5)],
    [(2, 1, 3, 2), (1, 3, 2, 3)],
]


def gemm(
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803  # ONNX's name
    transB: int = 0,  # noqa: N803  # ONNX's name
) -> Callable[..., torch.Tensor]:
    def reference(a: torch.Tensor, b: torch.Tensor, *c: torch.Tensor) -> torch.Tensor:
        product = alpha * (a.T if transA else a) @ (b.T if transB else b)
        return product + beta * c[0] if c else product

    return reference


def a_times_b(how: dict[str, Any]) -> list[tuple[int, ...]]:
    return [(4, 1) if how.get("transA") else (1, 4), (3, 4) if how.get("transB") else (4, 3)]


FORWARD: dict[int, Callable[..., torch.Tensor]] = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
BACKWARD: dict[int, Callable[..., torch.Tensor]] = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}
# Input, kernel of the forward operator, padding, stride, dilation.
CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], int, int, int]] = [
    ((2, 2, 5), (3, 2, 3), 0, 1, 1),
    ((2, 2, 5), (3, 2, 3), 1, 2, 1),
    ((2, 2, 5), (3, 2, 1), 0, 1, 1),
    ((2, 2, 5), (3, 2, 1), 1, 1, 1),
    ((1, 9, 7, 7), (2, 9, 3, 3), 0, 1, 1),
    ((1, 9, 7, 7), (2, 9, 3, 3), 1, 2, 1),
    ((1, 9, 7, 7), (2, 9, 1, 1), 0, 1, 1),
    ((1, 9, 7, 7), (2, 9, 1, 1), 1, 1, 1),
    ((2, 1, 5, 5), (3, 1, 3, 3), 0, 1, 2),
    ((2, 1, 7, 7), (3, 1, 3, 3), 1, 1, 2),
    ((2, 2, 4, 4, 4), (2, 2, 3, 3, 3), 0, 1, 1),
    ((2, 1, 5, 5, 5), (1, 1, 3, 3, 3), 1, 2, 1),
    ((1, 2, 5, 5, 5), (2, 2, 2, 2, 2), 0, 1, 2),
]


def spatial(x: tuple[int, ...], padding: int, stride: int, dilation: int) -> dict[str, Any]:
    rank = len(x) - 2
    return {"pads": [padding] * 2 * rank, "strides": [stride] * rank, "dilations": [dilation] * rank}


def convolved(rank: int, padding: int, stride: int, dilation: int) -> Callable[..., torch.Tensor]:
    return lambda x, w, b: FORWARD[rank](x, w, b, stride, padding, dilation)


def transposed(rank: int, padding: int, stride: int, dilation: int) -> Callable[..., torch.Tensor]:
    return lambda x, w, b: BACKWARD[rank](x, w, b, stride, padding, dilation=dilation)


def order(x: tuple[int, ...]) -> str:
    """Second derivatives in three dimensions take long; ../../test_convolution.py has some."""
    return "once" if len(x) == 5 else "twice"


CASES: list[tuple[Any, ...]] = [
    *(("MatMul", BOTH, shapes, {}, torch.matmul) for shapes in PRODUCTS),
    ("Gemm", BOTH, [(1, 4), (4, 3)], {}, gemm()),
    *(("Gemm", BOTH, [(2, 4), (4, 3), bias], {}, gemm()) for bias in [(), (3,), (1, 3), (2, 3)]),
    *(
        ("Gemm", BOTH, [*a_times_b(how), bias], how, gemm(**how))
        for how in (
            {"transA": 1},
            {"transB": 1},
            {"transA": 1, "transB": 1},
            {"alpha": 0.75, "beta": 5.0},
            {"alpha": 0.75, "beta": 5.0, "transA": 1},
        )
        for bias in [(3,), (1, 3), ()]
    ),
    *(
        ("Conv", (7, 11), [x, w, (w[0],)], spatial(x, *how), convolved(len(x) - 2, *how), "channels", order(x))
        for x, w, *how in CONVOLUTIONS
    ),
    *(
        (
            "ConvTranspose", (7, 11), [(x[0], w[0], *x[2:]), w, (w[1],)], spatial(x, *how),
            transposed(len(x) - 2, *how), "channels", order(x),
        )
        for x, w, *how in CONVOLUTIONS
    ),
]  # fmt: skip


def test_gradients(case: tuple[Any, ...], check_case: Callable[..., None]) -> None:
    check_case(case)
