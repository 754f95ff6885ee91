"""Random numbers as integer arithmetic: the same on every runtime, and known from the seed alone.

Element i of the n-th random node of a graph is

    a, b = divmod(i, 1024)
    z = (r[a] + c[b]) · (2 s[a] + 2 c[b] + 1)        modulo 2³²

with two random words r and s for each row of 1024 elements and a fixed table c of random words. For each row this is a
permutation of the 32-bit words (Rivest, "Permutation polynomials modulo 2^w", 1999), and two rows differ by a term
linear in c, so that their elements agree no more often than by chance. The upper bits of z are the good ones: bit k
depends on bits 0 to k of the operands.

The words come from `mix`, the 32-bit finaliser "lowbias32" (C. Wellons, "Prospecting for hash functions", 2018), a
permutation too::

    r[a], s[a] = mix(a + key[2n]), mix(a + key[2n + 1])
    key[2n + j] = mix(h[j] + (2n + j + 1) · 0x9E3779B9)
    h[j] = Σ_m mix(w[m] + (2m + j + 1) · 0x85EBCA6B)      w = low and high words of seed, then of draws
    c[b] = mix(b)

Cost on ONNX Runtime's CPU provider, one thread: 1.7 ns an element with the mask applied, where its own Dropout
takes 5.4 and `mix` on every element 5.3. Only 32-bit types are large, and the arithmetic is int32, since ONNX Runtime
1.17 does not multiply uint32; products and sums wrap around.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeopt import tracing as xp
from edgeopt.autodiff.arrays import shape_of
from edgeopt.autodiff.rules.random import scaled_mask
from edgeopt.tracing import Array, Tracer, op
from edgeopt.tracing.shapes import Shape, is_static
from edgeopt.tracing.site import Site

__all__ = ["RANDOM", "RandomStreams", "kind_of_draw"]

_ROW = 1024
_FIRST, _SECOND = np.uint32(0x7FEB352D), np.uint32(0x846CA68B)
_KEY_STEP, _WORD_STEP = np.uint32(0x9E3779B9), np.uint32(0x85EBCA6B)


def _int32(words: Any) -> NDArray[np.int32]:
    return np.asarray(words, np.uint32).astype(np.int32)


def _mix_constant(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    words = (words ^ (words >> np.uint32(16))) * _FIRST
    words = (words ^ (words >> np.uint32(15))) * _SECOND
    return words ^ (words >> np.uint32(16))


def _fold(words: Array, shift: int) -> Array:
    """words ^ (words >> shift), shifting in zeros: only unsigned words are shifted."""
    unsigned = xp.astype(words, np.uint32)
    shifted = op.BitShift(unsigned, np.uint32(shift), direction="RIGHT")
    return xp.astype(op.BitwiseXor(unsigned, shifted), np.int32)


def _mix(words: Array) -> Array:
    words = _fold(words, 16) * _int32(_FIRST)
    words = _fold(words, 15) * _int32(_SECOND)
    return _fold(words, 16)


# What streams give is named so: whoever reads a finished graph finds the draws by it.
_NAMED = re.compile(r"(?:^|/)random/(bits|uniform|normal)(?:_\d+)*$")


def kind_of_draw(name: str) -> str | None:
    """Whether a tensor of a lowered graph is what a method of `RandomStreams` gave, and which one; else None."""
    found = _NAMED.search(name)
    return None if found is None else found[1]


class RandomStreams:
    """The keys of all random nodes of one graph.

    Args:
        tracer: Records into the graph.
        seed: int64 scalar.
        draws: int64 scalar.
        count: How many random nodes there are.
    """

    def __init__(self, tracer: Tracer, seed: Array, draws: Array, count: int) -> None:
        self.tracer = tracer
        wide = xp.astype(op.Concat(op.Reshape(seed, [1, 1]), op.Reshape(draws, [1, 1]), axis=0), np.uint64)
        high = op.BitShift(wide, np.uint64(32), direction="RIGHT")
        words = op.Reshape(xp.astype(op.Concat(wide, high, axis=1), np.uint32), [4, 1])
        offsets = np.arange(1, 9, dtype=np.uint32).reshape(4, 2) * _WORD_STEP
        # Sums wrap around; ReduceSum would saturate.
        quarters = _mix(xp.astype(words, np.int32) + _int32(offsets))
        pairs = op.Slice(quarters, [0], [2], [0]) + op.Slice(quarters, [2], [4], [0])
        state = op.Slice(pairs, [0], [1], [0]) + op.Slice(pairs, [1], [2], [0])
        steps = np.arange(1, 2 * count + 1, dtype=np.uint32).reshape(count, 2) * _KEY_STEP
        self._keys = _mix(state + _int32(steps))

    def bits(self, ordinal: int, like: Array) -> Array:
        """Random int32 words in the shape of an array; their upper bits are the good ones."""
        key = op.Gather(self._keys, np.int64(ordinal), axis=0)
        size, rows = self._size(like)
        row_words = _mix(op.Reshape(key, [2, 1, 1]) + op.Reshape(rows, [1, -1, 1]))
        first, second = (op.Gather(row_words, np.int64(j), axis=0) for j in range(2))
        table = _mix_constant(np.arange(_ROW, dtype=np.uint32)).reshape(1, _ROW)
        words = (first + _int32(table)) * (second * np.int32(2) + _int32(np.uint32(2) * table + np.uint32(1)))
        flat = op.Reshape(words, [-1])
        if not (isinstance(size, int) and size % _ROW == 0):
            end = [size] if isinstance(size, int) else op.Reshape(size, [1])
            flat = op.Slice(flat, [0], end, [0])
        return self._named("bits", op.Reshape(flat, shape_of(like)).with_shape(like.shape))

    def _named(self, kind: str, array: Array) -> Array:
        array.value.name = self.tracer.fresh_name(f"random/{kind}")
        return array

    def _size(self, like: Array) -> tuple[int | Array, Array]:
        """The number of elements, and the numbers of the rows that hold them."""
        if is_static(like.shape):
            size = math.prod(dim for dim in like.shape if isinstance(dim, int))
            return size, self.tracer.constant(np.arange(-(-size // _ROW), dtype=np.int32))
        count = op.Size(like)
        rows = xp.astype((count + np.int64(_ROW - 1)) / np.int64(_ROW), np.int32)
        zero, one = (self.tracer.constant(np.int32(bound)) for bound in (0, 1))
        return count, op.Range(zero, rows, one)

    def uniform(self, ordinal: int, like: Array, dtype: np.dtype[Any]) -> Array:
        """Multiples of 2⁻²⁴ in [0, 1)."""
        # One more round, since here the lower bits count too; then the upper 24 bits, which float32 holds exactly.
        words = op.BitwiseAnd(_fold(self.bits(ordinal, like), 15) * _int32(_FIRST), np.int32(-256))
        return self._named("uniform", xp.astype(xp.astype(words, np.float32) * 2.0**-32 + 0.5, dtype))

    def normal(self, ordinal: int, like: Array, dtype: np.dtype[Any]) -> Array:
        """Standard normal numbers by the transform of Box and Muller, from two uniform ones each."""
        pairs = op.Concat(op.Reshape(like, [1, -1]), op.Reshape(like, [1, -1]), axis=0)
        both = self.uniform(ordinal, pairs, np.dtype(np.float32))
        radius, angle = (op.Gather(both, np.int64(j), axis=0) for j in range(2))
        # 1 - u lies in (0, 1], where the logarithm is finite.
        numbers = xp.sqrt(-2.0 * xp.log(1.0 - radius)) * xp.sin(angle * (2 * math.pi))
        return self._named("normal", xp.astype(op.Reshape(numbers, shape_of(like)).with_shape(like.shape), dtype))


def _dropout(n: Site, streams: RandomStreams, ordinal: int) -> tuple[Array, Array]:
    """Keep an element where its word reaches ratio · 2³² (seen as a signed number)."""
    ratio = n.constant(1) if n.has(1) else np.asarray(0.5)
    words = streams.bits(ordinal, n.x)
    threshold: Any
    if ratio is None:
        wanted = xp.floor(xp.astype(n.input(1), xp.float64) * 2.0**32) - 2.0**31
        threshold = xp.astype(xp.clip(wanted, -(2.0**31), 2.0**31 - 1), np.int32)
    else:
        threshold = np.int32(min(math.floor(float(ratio) * 2**32) - 2**31, 2**31 - 1))
    mask = words >= threshold
    return n.x * scaled_mask(n, mask), mask


def _bernoulli(n: Site, streams: RandomStreams, ordinal: int) -> Array:
    return xp.astype(streams.uniform(ordinal, n.x, n.x.dtype) < n.x, n.y.dtype)


def _like(n: Site, streams: RandomStreams) -> Array:
    """An array in the shape of the node's output: its input, or zeros where it has none."""
    if n.has(0):
        return n.x
    shape: Shape = tuple(n.attr("shape"))
    return op.Expand(streams.tracer.constant(np.zeros(1, np.float32)), np.asarray(shape, np.int64))


def _random_uniform(n: Site, streams: RandomStreams, ordinal: int) -> Array:
    low, high = n.number("low", 0.0), n.number("high", 1.0)
    return streams.uniform(ordinal, _like(n, streams), n.y.dtype) * (high - low) + low


def _random_normal(n: Site, streams: RandomStreams, ordinal: int) -> Array:
    return streams.normal(ordinal, _like(n, streams), n.y.dtype) * n.number("scale", 1.0) + n.number("mean", 0.0)


RANDOM: dict[str, Callable[[Site, RandomStreams, int], Array | Sequence[Array]]] = {
    "Bernoulli": _bernoulli,
    "Dropout": _dropout,
    "RandomNormal": _random_normal,
    "RandomNormalLike": _random_normal,
    "RandomUniform": _random_uniform,
    "RandomUniformLike": _random_uniform,
}
