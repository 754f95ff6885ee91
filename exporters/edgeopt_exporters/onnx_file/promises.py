"""Which of a file's symbolic dimensions are what they are called: those at which it was run at two sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from edgeopt_exporters.onnx_file.feeds import KINDS, Feeds, Kind
from edgeopt_exporters.onnx_file.trial import Arrays, NotRun, Original

__all__ = ["Promises", "Tried", "try_sizes"]

# Sizes of axis 0 and of all other open dimensions, until the file runs at one of these pairs.
_GUESSES = (
    *((2, 8), (2, 64), (1, 8), (1, 64), (2, 16), (2, 32), (2, 224), (1, 224), (1, 1), (2, 1), (2, 2)),
    *((1, 512), (1, 576), (2, 512), (1, 1600)),
)


@dataclass(frozen=True)
class Tried:
    """One run of the file, to be compared with."""

    sizes: Mapping[str, int]
    feeds: Arrays
    results: Arrays


@dataclass
class Promises:
    """What running a file at several sizes has shown.

    Attributes:
        kind: Of the inputs that were made up.
        base: The run at the examples' sizes, or at the first ones at which the file runs.
        others: Of each group of dimensions that grow together: runs at other sizes of theirs.
        fixed: Dimensions that run at the base's size only, and why.
    """

    kind: Kind
    base: Tried
    others: dict[tuple[str, ...], list[Tried]] = field(default_factory=dict)
    fixed: dict[str, str] = field(default_factory=dict)


def try_sizes(original: Original, feeds: Feeds) -> Promises:
    """Run a file at the examples' sizes, and then with each symbolic dimension at another size.

    Raises:
        NotRun: It runs at no sizes that were tried.
    """
    kind, base = _base(original, feeds)
    promises = Promises(kind, base)
    alone: dict[int, list[str]] = {}
    why: dict[str, str] = {}
    for name in feeds.names:
        sizes = _other_sizes(base.sizes[name], batch=name in feeds.of_axis_0)
        runs, problem = _run_at(original, feeds, kind, base, (name,), sizes)
        if runs:
            promises.others[name,] = runs
        else:
            alone.setdefault(base.sizes[name], []).append(name)
            why[name] = problem
    for size, names in alone.items():
        together = tuple(names)
        batch = bool(feeds.of_axis_0.intersection(names))
        runs = _run_at(original, feeds, kind, base, together, _other_sizes(size, batch=batch))[0] if names[1:] else []
        if runs:
            promises.others[together] = runs
        else:
            promises.fixed.update((name, f"the file itself {why[name]}") for name in names)
    return promises


def _other_sizes(size: int, *, batch: bool) -> tuple[tuple[int, ...], ...]:
    """Alternatives, of which the first that runs counts; a batch may shrink to one, too."""
    larger = (size + 1, 2 * size, size + 2) if size else (1, 2)
    return (larger, (1,)) if batch and size > 1 else (larger,)


def _base(original: Original, feeds: Feeds) -> tuple[Kind, Tried]:
    problem: NotRun | None = None
    second: tuple[Kind, Tried] | None = None
    for kind in KINDS:
        for sizes in _base_sizes(feeds):
            values = feeds.make(sizes, kind)
            try:
                tried = Tried(sizes, values, original.run(values))
            except NotRun as error:
                problem = problem or error
                continue
            if _says_something(tried.results):
                return kind, tried
            second = second or (kind, tried)
            break
    if second is not None:
        return second
    raise problem or NotRun("there is nothing to try")


def _base_sizes(feeds: Feeds) -> Iterator[dict[str, int]]:
    known, names = feeds.known, feeds.names
    seen = []
    for batch, other in _GUESSES:
        sizes = {name: known.get(name, batch if name in feeds.of_axis_0 else other) for name in names}
        if sizes not in seen:
            seen.append(sizes)
            yield sizes


def _says_something(results: Arrays) -> bool:
    """Whether numbers come out with which others can be compared."""
    floats = [array for array in results.values() if array.dtype.kind == "f"]
    return all(bool((array == array).all()) for array in floats)


def _run_at(
    original: Original,
    feeds: Feeds,
    kind: Kind,
    base: Tried,
    names: tuple[str, ...],
    alternatives: tuple[tuple[int, ...], ...],
) -> tuple[list[Tried], str]:
    """The first run of each list of sizes, where the first list has one, and the first problem."""
    runs: list[Tried] = []
    problem = ""
    for choices in alternatives:
        for size in choices:
            sizes = {**base.sizes, **dict.fromkeys(names, size)}
            values = feeds.make(sizes, kind)
            try:
                runs.append(Tried(sizes, values, original.run(values)))
            except NotRun as error:
                problem = problem or f"fails at {size}: {error}"
                continue
            break
        if not runs:
            break
    return runs, problem
