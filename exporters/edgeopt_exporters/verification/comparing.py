"""Whether two arrays are the same but for rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
# Norms above it are taken in the numbers' own type, where squares vanish only far below; NaN has none either.
_TINY = 1e-15


@dataclass(frozen=True)
class Difference:
    """An array that is not what it should be.

    Attributes:
        name: Of the output, buffer or parameter.
        error: Of the result, in units of `scale`.
        allowed: What rounding explains.
        expected: The model's.
        found: The graph's.
        unstable: Whether rounding alone changes the model's own result by a percent, so that a difference says little.
    """

    name: str
    error: float
    allowed: float
    expected: NDArray[Any]
    found: NDArray[Any]
    unstable: bool = False

    @property
    def text(self) -> str:
        """One line."""
        one, other = self.expected, self.found
        if one.shape != other.shape:
            return f"has shape {other.shape} instead of {one.shape}"
        if one.dtype.kind != "f":
            return f"is {_shown(other)} instead of {_shown(one)}"
        a, b = _wide(one), _wide(other)
        at = tuple(int(index) for index in np.unravel_index(int(np.argmax(_ranked(_apart(a, b), b - a))), a.shape))
        where = f" at {list(at)}" if at else ""
        rounding = f"error {self.error:.2g}, rounding explains {self.allowed:.2g}"
        return f"is {b[at]:.9g} instead of {a[at]:.9g}{where} ({rounding})"


@dataclass(frozen=True)
class Tolerance:
    """How large a difference may be, relative to the largest element (outputs, state) or the norm (gradients).

    Attributes:
        kind: Of results.
        of: The size of an array of floating-point numbers, in its own type.
    """

    kind: str
    of: Callable[[NDArray[Any]], float]

    def units(self, epsilon: float) -> float:
        """The relative error that is never asked about, in a precision of this spacing."""
        return _UNITS[self.kind] * epsilon

    def measure(self, array: NDArray[Any]) -> float:
        """How large an array is; without what is not finite in it."""
        if array.dtype.kind != "f":
            return 0.0
        size = self.of(array) if array.itemsize >= _SINGLE else np.nan
        return size if _TINY < size < np.inf else self.of(_finite(_wide(array)))


_SINGLE = np.dtype(np.float32).itemsize


def _largest(array: NDArray[Any]) -> float:
    return float(np.maximum(array.max(initial=0.0), -array.min(initial=0.0)))


def _rms(array: NDArray[Any]) -> float:
    flat = array.reshape(-1)
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.dot(flat, flat) / max(flat.size, 1)))


OUTPUTS = Tolerance("outputs", _largest)
GRADIENTS = Tolerance("gradients", _rms)


def compare(
    expected: Arrays,
    found: Arrays,
    tolerance: Tolerance,
    epsilon: float,
    nudged: Iterable[Arrays],
    noise: dict[str, float] | None = None,
) -> list[Difference]:
    """What differs by more than rounding, largest first.

    Args:
        expected: The model's results by name; those that `found` lacks are not compared.
        found: The graph's.
        tolerance: The kind.
        epsilon: The relative spacing of the coarsest type that the model computes in.
        nudged: The model's results after changes in the last digits of everything that goes in, asked for one after
            the other while they are needed: where the model itself is that sensitive, so may the graph be.
        noise: What such changes did before, by name and in units of the result; what they do here is added.
    """
    common = [name for name in expected if name in found]
    if tolerance.kind != "gradients":
        # Integers and what does not depend on the order of sums.
        common = [name for name in common if not np.array_equal(expected[name], found[name])]
    scales = {name: tolerance.measure(np.asarray(expected[name])) for name in common}
    floor = _FLOOR * max(scales.values(), default=0.0) if tolerance.kind == "gradients" else 0.0
    noise = {} if noise is None else noise

    def apart(name: str) -> Difference | None:
        one, other = np.asarray(expected[name]), np.asarray(found[name])
        return _difference(name, one, other, tolerance, epsilon, max(scales[name], floor), noise.get(name, 0.0))

    different = [name for name in common if apart(name)]
    tries = iter(nudged)
    while different and (results := next(tries, None)) is not None:
        for name in different:
            error = _error(np.asarray(expected[name]), np.asarray(results[name]), tolerance)
            error /= max(scales[name], floor) or 1.0
            noise[name] = max(noise.get(name, 0.0), error if np.isfinite(error) else 0.0)
        different = [name for name in different if apart(name)]
    differences = [difference for name in different if (difference := apart(name)) is not None]
    return sorted(differences, key=lambda difference: -np.nan_to_num(difference.error, nan=np.inf))


def _difference(
    name: str,
    one: NDArray[Any],
    other: NDArray[Any],
    tolerance: Tolerance,
    epsilon: float,
    scale: float,
    noise: float,
) -> Difference | None:
    if one.shape != other.shape:
        return Difference(name, np.inf, 0.0, one, other)
    if one.dtype.kind != "f":
        return None if np.array_equal(one, other) else Difference(name, np.inf, 0.0, one, other)
    units = tolerance.units(max(epsilon, float(np.finfo(one.dtype).eps)))
    allowed = max(units * scale + _TIMES_NOISE * noise * (scale or 1.0), float(np.finfo(one.dtype).tiny))
    error = _error(one, other, tolerance)
    return None if error <= allowed else Difference(name, error, allowed, one, other, allowed > _UNSTABLE * scale)


def _error(one: NDArray[Any], other: NDArray[Any], tolerance: Tolerance) -> float:
    """The size of the difference; two NaN, or two equal infinities, do not differ."""
    if one.dtype == other.dtype and one.itemsize >= _SINGLE:
        with np.errstate(all="ignore"):
            error = tolerance.of(other - one)
        if _TINY < error < np.inf:
            # As it is nearly always, and costs one copy only.
            return error
    a, b = _wide(one), _wide(other)
    apart = _apart(a, b)
    return tolerance.of(np.where(apart, b - a, 0.0)) if apart.any() else 0.0


def _apart(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray(~((one == other) | (np.isnan(one) & np.isnan(other))))


def _ranked(apart: NDArray[np.bool_], error: NDArray[Any]) -> NDArray[Any]:
    return np.where(apart, np.nan_to_num(np.abs(error), nan=np.inf), 0.0)


def _wide(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(array, np.float64) if np.asarray(array).dtype.kind == "f" else np.asarray(array)


def _finite(array: NDArray[Any]) -> NDArray[Any]:
    return np.where(np.isfinite(array), array, 0.0)


def _shown(array: NDArray[Any]) -> str:
    text = np.array2string(array, threshold=4, edgeitems=2).replace("\n", " ")
    return text if len(text) < 60 else f"{text[:57]}..."
