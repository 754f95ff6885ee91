"""Tables of the values that a few bits can say, between -1 and 1, in ascending order."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["NF4", "Table", "dynamic", "float8", "linear_unsigned"]

Table = np.ndarray[Any, np.dtype[np.float32]]

#: NormalFloat of 4 bits: quantiles of the normal distribution (Dettmers et al., NeurIPS 2023, arXiv:2305.14314,
#: appendix E).
NF4: Table = np.asarray(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
        *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
        *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ],
    np.float32,
)


def dynamic(signed: bool, exponents: int = 7) -> Table:
    """The dynamic tree map (Dettmers et al., ICLR 2022, arXiv:2110.02861): as many decades as there are exponents.

    In decade i, from 10^(i - exponents) to ten times that, lie the midpoints of 2^i equal intervals (2^(i + 1) where
    there are no negative values); 0 and 1 complete it. Seven exponents make 256 values, three of them 16.
    """
    values = [np.float32(0.0), np.float32(1.0)]
    for decade in range(exponents):
        edges = _edges(2**decade if signed else 2 ** (decade + 1))
        middles = (edges[:-1] + edges[1:]) / np.float32(2.0) * np.float32(10.0 ** (decade - exponents + 1))
        values += [*middles, *(-middles if signed else ())]
    return np.sort(np.asarray(values, np.float32))


def _edges(count: int) -> Table:
    """The ends of equal intervals from 0.1 to 1 with the rounding of `torch.linspace`, for maps equal to the last bit.

    It computes in float32 from both ends, and rounds each once.
    """
    step = float((np.float32(1.0) - np.float32(0.1)) / np.float32(count))
    place = np.arange(count + 1)
    upper = 1.0 - step * (count - place)
    return np.where(place < (count + 1) // 2, float(np.float32(0.1)) + step * place, upper).astype(np.float32)


def linear_unsigned(bits: int) -> Table:
    """1/2ᵇ, 2/2ᵇ, …, 1: without a zero, which would stop a second moment of 4 bits from dividing (arXiv:2309.01507)."""
    return (np.arange(1, 2**bits + 1) / 2.0**bits).astype(np.float32)


def float8(kind: str) -> tuple[Table, np.ndarray[Any, np.dtype[np.uint8]]]:
    """The finite values of an 8-bit float over its largest, and the bytes that stand for them.

    Args:
        kind: ``float8_e4m3fn`` or ``float8_e5m2``.
    """
    codes = np.arange(256, dtype=np.uint8)
    values = codes.view(getattr(ml_dtypes, kind)).astype(np.float32)
    # Of the two zeros the positive one.
    kept = np.isfinite(values) & (codes != 128)
    order = np.argsort(values[kept], kind="stable")
    return (values[kept] / np.max(values[kept]))[order], codes[kept][order]
