"""ONNX Runtime's arena for the CPU, as far as it decides how much memory is touched.

Its allocator is best fit with coalescing: regions that double in size, chunks that are split where at least half would
be left over. Regions never join, and what is free in one of them may be too small for what is asked for: a step takes
more than its live tensors. Sizes are those of ``onnxruntime/core/framework/bfc_arena.h``.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

__all__ = ["Arena", "Chunk"]

_MULTIPLE = 256
_FIRST, _GROWTH = 1 << 20, 2 << 20
_MOST_LEFT = 128 << 20


@dataclass(eq=False)
class Chunk:
    """A piece of a region, in use or free, between its neighbours."""

    region: int
    start: int
    size: int
    before: Chunk | None = None
    behind: Chunk | None = None
    free: bool = True


class Arena:
    """Counts what a sequence of allocations touches."""

    def __init__(self) -> None:
        # Free chunks by size, then by place.
        self._free: list[tuple[int, int, int]] = []
        self._chunks: dict[tuple[int, int], Chunk] = {}
        self._touched: list[int] = []
        self._next = _FIRST

    @property
    def touched(self) -> int:
        """Bytes that have been written at any time: a system hands out the pages of these."""
        return sum(self._touched)

    def take(self, size: int) -> Chunk:
        """A chunk of at least so many bytes."""
        rounded = max(-(-size // _MULTIPLE), 1) * _MULTIPLE
        index = bisect_left(self._free, (rounded, -1, -1))
        if index == len(self._free):
            self._extend(rounded)
            index = bisect_left(self._free, (rounded, -1, -1))
        _, region, start = self._free.pop(index)
        chunk = self._chunks[region, start]
        chunk.free = False
        if chunk.size >= 2 * rounded or chunk.size - rounded >= _MOST_LEFT:
            rest = Chunk(region, start + rounded, chunk.size - rounded, chunk, chunk.behind)
            if rest.behind is not None:
                rest.behind.before = rest
            chunk.size, chunk.behind = rounded, rest
            self._keep(rest)
        self._touched[region] = max(self._touched[region], start + size)
        return chunk

    def give(self, chunk: Chunk) -> None:
        """Take a chunk back, and join it with free neighbours."""
        chunk.free = True
        for left, right in ((chunk, chunk.behind), (chunk.before, chunk)):
            if left is None or right is None or not (left.free and right.free):
                continue
            for joined in (left, right):
                self._drop(joined)
            left.size += right.size
            left.behind = right.behind
            if left.behind is not None:
                left.behind.before = left
            chunk = left
        self._keep(chunk)

    def _extend(self, size: int) -> None:
        first, grew = not self._touched, False
        while self._next < size:
            self._next, grew = self._next * 2, True
        self._touched.append(0)
        self._keep(Chunk(len(self._touched) - 1, 0, self._next))
        if first:
            self._next = max(self._next if grew else 0, _GROWTH)
        elif not grew:
            self._next *= 2

    def _keep(self, chunk: Chunk) -> None:
        self._chunks[chunk.region, chunk.start] = chunk
        insort(self._free, (chunk.size, chunk.region, chunk.start))

    def _drop(self, chunk: Chunk) -> None:
        place = (chunk.size, chunk.region, chunk.start)
        index = bisect_left(self._free, place)
        if index < len(self._free) and self._free[index] == place:
            del self._free[index]
        self._chunks.pop((chunk.region, chunk.start), None)
