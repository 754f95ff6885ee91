"""The report as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from measuring.records import Record
from peers import ANCHOR, PEERS
from reporting.results import Results
from workloads import WORKLOADS

__all__ = ["markdown"]

Cell = Callable[[Record], str]


class _Footnotes:
    """Numbered reasons, each said once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, reason: str) -> str:
        number = self._numbers.setdefault(reason, len(self._numbers) + 1)
        return f"[{number}]"

    def lines(self) -> str:
        return "\n".join(f"{number}. {reason}" for reason, number in self._numbers.items())


def markdown(results: Results) -> str:
    """The whole report."""
    notes = _Footnotes()
    parts = ["# One training step", _conditions(results), "![Speed of a training step](results.png)"]
    for threads in sorted({count for _, count in results.rows}):
        several = f"{threads} thread{'s' if threads > 1 else ''}"
        parts += [f"## {several}", _summary(results, threads)]
        times = _table(results, threads, notes, lambda record: _time(results, record))
        parts += ["### Median milliseconds of a step", times]
        parts += [f"### Times as fast as the fastest peer ({several})", _speeds(results, threads)]
        parts += ["### CPU milliseconds, all threads", _table(results, threads, notes, _processor)]
        memory = _table(results, threads, notes, lambda record: _number(record.memory_mib, 0))
        parts += ["### Peak memory above the imported runtime, MiB", memory]
        seconds = _table(results, threads, notes, lambda record: f"{record.first_step_seconds:.2f}")
        parts += ["### Seconds from load to the end of the first step", seconds]
        shares = _table(results, threads, notes, lambda record: _shares(results, record))
        parts += ["### Share of the matrix-product peak / of the copy peak", shares]
    sizes = _table(results, results.rows[0][1], notes, lambda record: _number((record.bytes or 0) / 1e6 or None, 2))
    remarks = "\n".join(f"- {name}: {PEERS[name].remark}" for name in results.columns if PEERS[name].remark)
    parts += ["## Artifact, MB", sizes, "## Notes", notes.lines(), remarks, _EXPLANATION]
    return "\n\n".join(part for part in parts if part) + "\n"


_EXPLANATION = """Times are medians of single steps; the fastest peer's is bold. Ratios are taken within rounds in which
all peers run one after the other, against `torch`, which is PyTorch's default, and say how many times as fast: above 1
edgeopt is faster. "≠" marks losses that differ from PyTorch's: that peer does not count. A mean is geometric, over the
workloads that both train. The share of the matrix-product peak counts the operations of forward and backward pass, that
of the copy peak the bytes that AdamW must move (28 for each trained parameter). The peaks are measured in the same
rounds, the copy over as many bytes. Where neighbours kept more than a fifth of a core busy, ratios and shares of one
thread are of CPU time instead of wall time, which says who was interrupted."""


def _conditions(results: Results) -> str:
    about = results.machine
    records = [record for record in results.cells.values() if not record.cannot]
    # Each peer's own package; what else its environment holds is in the JSON.
    own = ("edgeopt", "onnxruntime")
    versions = {
        name: version
        for record in records
        for place, (name, version) in enumerate(record.versions.items())
        if place == 0 or (PEERS[record.peer].ours and name in own)
    }
    features = ", ".join(about["cpu_features"]) or "no features known"
    busiest = max((record.busy[1] for record in records), default=0.0)
    typical = sorted(record.busy[0] for record in records)[len(records) // 2] if records else 0.0
    quick = sum(record.quick for record in records)
    days = sorted({record.when for record in records})
    hurry = f" {quick} of the {len(records)} cells were measured in a hurry (`QUICK=1`)." if quick else ""
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}" if days else "never"
    return (
        f"{about['system']} on {about['architecture']} ({features}), {about['cores']} cores, Python {about['python']}; "
        f"{', '.join(f'{name} {version}' for name, version in sorted(versions.items()))}. Measured {span}. Other "
        f"processes kept {typical:.2f} cores busy in the rounds that count of the median cell, {busiest:.2f} in the "
        f"worst.{hurry}"
    )


def _table(results: Results, threads: int, notes: _Footnotes, cell: Cell) -> str:
    columns = results.columns
    rows = []
    for name, count in results.rows:
        if count == threads:
            cells = (_cell(results, results.cells.get((name, threads, peer)), notes, cell) for peer in columns)
            rows.append([WORKLOADS[name].title, *cells])
    return _lines(["", *columns], rows)


def _cell(results: Results, record: Record | None, notes: _Footnotes, cell: Cell) -> str:
    if record is None:
        return ""
    if record.cannot:
        return f"- {notes.mark(record.cannot)}"
    text = cell(record)
    difference = results.difference(record)
    if not results.right(record):
        reason = (
            f"its losses differ from PyTorch's by {difference or 0.0:.2g} of what PyTorch learns in the first steps."
        )
        return f"{text} ≠ {notes.mark(f'{record.peer} on {WORKLOADS[record.workload].title}: {reason}')}"
    return text


def _lines(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *map(list, rows)])


def _time(results: Results, record: Record) -> str:
    text = f"{record.median_ms:.3g}" if record.median_ms < 100 else f"{record.median_ms:.0f}"
    fastest = results.fastest(record.workload, record.threads)
    return f"**{text}**" if fastest is record else text


def _processor(record: Record) -> str:
    return f"{record.processor_ms:.3g}" if record.processor_ms < 100 else f"{record.processor_ms:.0f}"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _shares(results: Results, record: Record) -> str:
    gemm, copy = results.shares(record)
    return f"{gemm:.0%} / {copy:.0%}"


def _ours(results: Results) -> list[str]:
    return [name for name in results.columns if PEERS[name].ours and not PEERS[name].narrow]


def _speeds(results: Results, threads: int) -> str:
    ours = _ours(results)
    head = [
        "",
        *(f"{name} / {rival}" for name in ours for rival in ("fastest", ANCHOR)),
        "fastest peer",
        "leanest peer",
    ]
    rows = []
    for name, count in results.rows:
        if count != threads:
            continue
        speeds = [results.speed(name, threads, own, rival) for own in ours for rival in (None, ANCHOR)]
        fastest, leanest = results.fastest(name, threads), results.leanest(name, threads)
        lean = f"{leanest.peer}, {_number(leanest.memory_mib, 0)} MiB" if leanest else ""
        rows.append(
            [WORKLOADS[name].title, *(_number(speed, 2) for speed in speeds), fastest.peer if fastest else "", lean]
        )
    return _lines(head, rows)


def _summary(results: Results, threads: int) -> str:
    said = []
    for own in _ours(results):
        for updates, what in ((False, "training steps"), (True, "updates alone")):
            fastest = results.mean_speed(own, threads, updates=updates)
            anchor = results.mean_speed(own, threads, ANCHOR, updates)
            if fastest and anchor:
                pace = f"**{fastest:.2f}** times as fast as the fastest peer of each, {anchor:.2f} times {ANCHOR}"
                said.append(f"- {own}, {what}: {pace}")
    return "\n".join(said)
