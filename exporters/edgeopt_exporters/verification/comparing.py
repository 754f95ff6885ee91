"""Whether two arrays are the same but for rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeopt_exporters.verification.reference import Arrays

__all__ = ["Difference", "Tolerance", "compare"]

# Sums in another order differ by some units in the last place; so much is never asked about.
_UNITS = {"outputs": 2.0**7, "gradients": 2.0**10}
# Beyond it, the model itself is asked what rounding does to it. Ours may be so many times worse.
_TIMES_NOISE = 32.0
# Rounding that explains more than this share of a result is no mere rounding any more.
_UNSTABLE = 1e-2
# A gradient that is zero but for rounding, as that of a bias in front of a softmax, has no scale of its own.
_FLOOR = 1e-3


@dataclass(frozen=True)
class Difference:
    """An array that is not what it should be.

    Attributes:
        name: Of the output, buffer or parameter.
        error: Of the result, in units of `scale`.
        allowed: What rounding explains.
        text: One line.
        unstable: Whether rounding alone changes the model's own result by a percent, so that a difference says little.
    """

    name: str
    error: float
    allowed: float
    text: str
    unstable: bool = False


@dataclass(frozen=True)
class Tolerance:
    """How large a difference may be, relative to the largest element (outputs, state) or the norm (gradients)."""

    kind: str
    measure: Callable[[NDArray[Any]], float]

    def units(self, epsilon: float) -> float:
        """The relative error that is never asked about, in a precision of this spacing."""
        return _UNITS[self.kind] * epsilon


def _largest(array: NDArray[Any]) -> float:
    return float(np.max(np.abs(array), initial=0.0))


def _rms(array: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean(array * array))) if array.size else 0.0


OUTPUTS = Tolerance("outputs", _largest)
GRADIENTS = Tolerance("gradients", _rms)


def compare(
    expected: Arrays, found: Arrays, tolerance: Tolerance, epsilon: float, nudged: Iterable[Arrays]
) -> list[Difference]:
    """What differs by more than rounding, largest first.

    Args:
        expected: The model's results by name; those that `found` lacks are not compared.
        found: The graph's.
        tolerance: The kind.
        epsilon: The relative spacing of the coarsest type that the model computes in.
        nudged: The model's results after changes in the last digits of everything that goes in, asked for one after
            the other while they are needed: where the model itself is that sensitive, so may the graph be.
    """
    noise: dict[str, float] = {}
    differences = _differences(expected, found, tolerance, epsilon, noise)
    tries = iter(nudged)
    while differences and (results := next(tries, None)) is not None:
        for difference in differences:
            name = difference.name
            error = tolerance.measure(_wide(results[name]) - _wide(expected[name]))
            noise[name] = max(noise.get(name, 0.0), error if np.isfinite(error) else 0.0)
        differences = _differences(expected, found, tolerance, epsilon, noise)
    return differences


def _differences(
    expected: Arrays, found: Arrays, tolerance: Tolerance, epsilon: float, noise: Mapping[str, float]
) -> list[Difference]:
    common = [name for name in expected if name in found]
    if tolerance.kind != "gradients":
        # Most of the state, which may be large, stays as it was.
        common = [name for name in common if not np.array_equal(expected[name], found[name])]
    scales = {name: tolerance.measure(_finite(_wide(expected[name]))) for name in common}
    floor = _FLOOR * max(scales.values(), default=0.0) if tolerance.kind == "gradients" else 0.0
    differences = []
    for name in common:
        one, other = np.asarray(expected[name]), np.asarray(found[name])
        if one.shape != other.shape:
            differences.append(Difference(name, np.inf, 0.0, f"has shape {other.shape} instead of {one.shape}"))
            continue
        if one.dtype.kind != "f":
            if not np.array_equal(one, other):
                differences.append(Difference(name, np.inf, 0.0, f"is {_shown(other)} instead of {_shown(one)}"))
            continue
        a, b = _wide(one), _wide(other)
        scale = max(scales[name], floor)
        units = tolerance.units(max(epsilon, float(np.finfo(one.dtype).eps)))
        allowed = units * scale + _TIMES_NOISE * noise.get(name, 0.0)
        allowed = max(allowed, float(np.finfo(one.dtype).tiny))
        apart = ~((a == b) | (np.isnan(a) & np.isnan(b)))
        error = tolerance.measure(np.where(apart, b - a, 0.0)) if apart.any() else 0.0
        if not error <= allowed:
            at = tuple(int(index) for index in np.unravel_index(int(np.argmax(_ranked(apart, b - a))), a.shape))
            where = f" at {list(at)}" if at else ""
            text = f"is {b[at]:.9g} instead of {a[at]:.9g}{where} (error {error:.2g}, rounding explains {allowed:.2g})"
            differences.append(Difference(name, error, allowed, text, allowed > _UNSTABLE * scale))
    return sorted(differences, key=lambda difference: -np.nan_to_num(difference.error, nan=np.inf))


def _ranked(apart: NDArray[np.bool_], error: NDArray[Any]) -> NDArray[Any]:
    return np.where(apart, np.nan_to_num(np.abs(error), nan=np.inf), 0.0)


def _wide(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(array, np.float64) if np.asarray(array).dtype.kind == "f" else np.asarray(array)


def _finite(array: NDArray[Any]) -> NDArray[Any]:
    return np.where(np.isfinite(array), array, 0.0)


def _shown(array: NDArray[Any]) -> str:
    text = np.array2string(array, threshold=4, edgeitems=2).replace("\n", " ")
    return text if len(text) < 60 else f"{text[:57]}..."
