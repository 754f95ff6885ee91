"""What becomes of a file proves itself beside the file, and dimensions prove that they are symbolic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from edgeopt.errors import ExportDifferenceError, SignatureError
from edgeopt.training.forward import ForwardModel
from edgeopt_exporters.onnx_file.feeds import Feeds, Kind
from edgeopt_exporters.onnx_file.promises import Promises, Tried, try_sizes
from edgeopt_exporters.onnx_file.trial import Arrays, Exported, NotRun, Original, differences
from edgeopt_runtime.manifest import Decision

__all__ = ["Proof"]

_LISTED = 4


class Proof:
    """Runs a file and the graphs that are made of it.

    Args:
        model: The file as it was given.
        loaded: The same, read.
        output: A tensor inside of it that is an output, too.
        asked: Symbolic dimensions that the caller named, by input and axis.
    """

    def __init__(
        self, model: Any, loaded: ir.Model, output: str | None, asked: Mapping[str, Mapping[int, str]]
    ) -> None:
        self._asked = {name for axes in asked.values() for name in axes.values()}
        self._unchecked: str | None = None
        self._original: Original | None = None
        self._feeds: Feeds | None = None
        self._promises: Promises | None = None
        self._proven = False
        opened = _static_axes(loaded.graph, asked)
        shapes = {value.name: list(value.shape or []) for value in loaded.graph.inputs}
        self._declared = {
            symbol: size
            for name, axes in opened.items()
            for axis, symbol in axes.items()
            if isinstance(size := shapes[name][axis], int)
        }
        try:
            self._original = Original(model, loaded, output, opened)
        except NotRun as error:
            self._unchecked = f"ONNX Runtime does not load the file: {error}"

    def start(self, graph: ir.Graph, examples: Mapping[str, Any], fixed: Mapping[str, NDArray[Any]]) -> None:
        """Run the file at several sizes of the open dimensions of these inputs.

        Raises:
            SignatureError: A dimension that the caller named has one size only.
        """
        self._feeds = Feeds.of(graph, examples, fixed, self._declared)
        if self._feeds is None:
            self._unchecked = self._unchecked or "an input is no tensor of numbers of known rank"
        if self._original is None or self._feeds is None:
            return
        try:
            self._promises = try_sizes(self._original, self._feeds)
        except NotRun as error:
            self._unchecked = f"ONNX Runtime does not run the file on the inputs tried, {error}; give example_inputs"
        else:
            self._refuse(self._promises.fixed)

    def settle(self, graph: ir.Graph) -> None:
        """Give the inputs the sizes that dimensions turned out to have, and one name to those that grow together."""
        if self._promises is None:
            return
        known: dict[str, int | str] = {name: self._promises.base.sizes[name] for name in self._promises.fixed}
        for names in self._promises.others:
            known.update(dict.fromkeys(names, names[0]))
        for value in graph.inputs:
            if value.shape is not None:
                dims = [dim if isinstance(dim, int) else dim.value for dim in value.shape]
                value.shape = ir.Shape([known.get(dim, dim) if isinstance(dim, str) else dim for dim in dims])

    def contradicted_by(self, forward: ForwardModel) -> bool:
        """Whether the graphs give something else than the file at other sizes; those dimensions are fixed by then.

        Raises:
            ExportDifferenceError: They do at the sizes of the examples.
            SignatureError: They do at other sizes of a dimension that the caller named.
        """
        if self._promises is None or self._proven:
            return False
        try:
            exported = _exported(forward)
            lines = self._compared(exported, self._promises.base)
        except NotRun as error:
            lines = [f"ONNX Runtime fails: {error}"]
        if lines:
            shown = "".join(f"\n  - {line}" for line in lines[:_LISTED])
            raise ExportDifferenceError(
                f"The exported graph does not compute what the file computes:{shown}\nThat is a fault of the export: "
                "please report it. check=False exports what there is.",
                lines,
            )
        found = {}
        for names, runs in self._promises.others.items():
            for run in runs:
                try:
                    problem = next(iter(self._compared(exported, run)), None)
                except NotRun as error:
                    problem = f"ONNX Runtime fails: {error}"
                if problem is not None:
                    found[names] = f"at {run.sizes[names[0]]} the exported graph is not the file: {problem}"
                    break
        for names, why in found.items():
            self._refuse(dict.fromkeys(names, why))
            self._promises.fixed.update(dict.fromkeys(names, why))
            del self._promises.others[names]
        self._proven = not found
        return bool(found)

    def batch_problem(self, count: int, forward: ForwardModel, static: ForwardModel) -> str | None:
        """Why a graph with a symbolic batch is not the file, run for `count` examples at a time; None if it is.

        Args:
            count: How many examples the file takes.
            forward: The graph.
            static: The graph with the file's own number, for a file that ONNX Runtime does not run.
        """
        if self._feeds is None:
            return self._unchecked
        try:
            exported = _exported(forward)
            training = None if _are_alike(forward) else Exported(forward.train.model, exported.state)
            run = self._original.run if self._promises and self._original else _exported(static).run
            if self._promises is not None and (lines := self._compared(exported, self._promises.base)):
                return lines[0]
            known = None if self._promises is None or self._original is None else self._promises.base
            for total in (count + 1, *([1] if count > 1 else [])):
                sizes, kind = self._settled
                feeds = self._feeds.make(sizes, kind, total)
                expected, found = _by_parts(run, feeds, self._feeds, count, total, known), exported.run(feeds)
                lines = self._differences(_fitted(expected, found, count, total), found, exported, feeds)
                if lines:
                    return f"of {total} together, {lines[0]}"
                # Nobody says what it gives, where it drops elements; but it has to run.
                if training is not None:
                    training.run(feeds)
        except NotRun as error:
            return f"ONNX Runtime fails: {error}"
        self._proven = True
        if self._promises is not None:
            # Those of the file run at one size; what was made of it is not so bound.
            for name in self._feeds.of_axis_0:
                self._promises.fixed.pop(name, None)
        return None

    @property
    def _settled(self) -> tuple[Mapping[str, int], Kind]:
        return ({}, "lively") if self._promises is None else (self._promises.base.sizes, self._promises.kind)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """What was found, for people."""
        if self._promises is None:
            reason = self._unchecked or "it was not run"
            text = f"the exported graph was not compared with the file: {reason}"
            return (Decision("unchecked", "predict", text, warning=True),)
        found = [
            Decision("symbolic", names[0], _promised(names, self._promises.base, runs, self._random))
            for names, runs in self._promises.others.items()
        ]
        sizes = self._promises.base.sizes
        guessed = set(sizes) - set(self._feeds.known if self._feeds is not None else ())
        found += [
            Decision("fixed", name, f"{name} is fixed at {sizes[name]}: {why}", warning=name in guessed)
            for name, why in self._promises.fixed.items()
        ]
        if self._random:
            text = f"predictions were compared with the file's in shape only: it draws random numbers ({self._random})"
            return (*found, Decision("unchecked", "predict", text))
        return (*found, Decision("checked", "predict", "predictions equal the file's on ONNX Runtime"))

    @property
    def _random(self) -> str:
        return "" if self._original is None else ", ".join(self._original.random)

    def _compared(self, exported: Exported, tried: Tried) -> list[str]:
        return self._differences(tried.results, exported.run(tried.feeds), exported, tried.feeds)

    def _differences(self, expected: Arrays, found: Arrays, exported: Exported, feeds: Arrays) -> list[str]:
        noise = lambda: exported.noise(feeds)  # noqa: E731  # one line, handed on once
        return differences(expected, found, noise, shapes_only=bool(self._random))

    def _refuse(self, fixed: Mapping[str, str]) -> None:
        if refused := {name: why for name, why in fixed.items() if name in self._asked}:
            listing = "".join(f"\n  - {name!r}: {why}" for name, why in refused.items())
            raise SignatureError(
                f"These dimensions cannot be symbolic:{listing}\nLeave them out of dynamic_shapes, so that they keep "
                "the sizes of the examples."
            )


def _exported(forward: ForwardModel) -> Exported:
    return Exported(forward.evaluate.model, {**forward.parameters, **forward.buffers})


def _are_alike(forward: ForwardModel) -> bool:
    """Whether both modes are one graph: nothing is dropped, and no statistics are taken."""
    modes = [[node.op_type for node in mode.model.graph] for mode in (forward.train, forward.evaluate)]
    taken = any(node.attributes.get_int("training_mode", 0) for node in forward.train.model.graph)
    return modes[0] == modes[1] and not taken and "Dropout" not in modes[0]


def _static_axes(graph: ir.Graph, asked: Mapping[str, Mapping[int, str]]) -> dict[str, dict[int, str]]:
    """The dimensions that the caller names and the file does not."""
    shapes = {value.name or "": value.shape for value in graph.inputs if value.shape is not None}
    found: dict[str, dict[int, str]] = {}
    for name, axes in asked.items():
        shape = list(shapes.get(name) or [])
        for axis, symbol in axes.items():
            if -len(shape) <= axis < len(shape) and isinstance(shape[axis], int):
                found.setdefault(name, {})[axis % len(shape)] = symbol
    return found


def _by_parts(
    run: Callable[[Mapping[str, NDArray[Any]]], Arrays],
    feeds: Arrays,
    of: Feeds,
    count: int,
    total: int,
    known: Tried | None,
) -> list[Arrays]:
    """Results for `count` examples at a time; the last ones are filled up. What is known is not run again."""
    results = []
    for start in range(0, total, count):
        rows = np.arange(start, start + count) % total
        part = {name: array[rows] if of.dims.get(name) else array for name, array in feeds.items()}
        is_known = known is not None and all(np.array_equal(known.feeds[name], part[name]) for name in part)
        results.append(known.results if known is not None and is_known else run(part))
    return results


def _fitted(parts: list[Arrays], found: Arrays, count: int, total: int) -> Arrays:
    """The parts of each result joined along the axis on which the whole is longer than a part."""
    expected = {}
    for name, whole in found.items():
        if name not in parts[0]:
            continue
        pieces = [part[name] for part in parts]
        axes = [axis for axis, size in enumerate(pieces[0].shape) if whole.shape[axis : axis + 1] != (size,)]
        if len(axes) == 1:
            joined = np.concatenate(pieces, axes[0])
            length = pieces[0].shape[axes[0]] * total // count
            expected[name] = joined.take(range(min(length, joined.shape[axes[0]])), axes[0])
        else:
            # The same for all examples, so that any part may show that it is not.
            expected[name] = next((piece for piece in pieces if not _close(piece, whole)), pieces[0])
    return expected


def _close(piece: NDArray[Any], whole: NDArray[Any]) -> bool:
    return not differences({"": piece}, {"": whole}, dict)


def _promised(names: tuple[str, ...], base: Tried, runs: list[Tried], random: str) -> str:
    sizes = [str(tried.sizes[names[0]]) for tried in (base, *runs)]
    said = f"{'shapes' if random else 'results'} equal the file's at {', '.join(sizes[:-1])} and {sizes[-1]}"
    if len(names) > 1:
        return f"{names[0]} is symbolic, and the same as {', '.join(names[1:])}: {said}"
    return f"{names[0]} is symbolic: {said}"
