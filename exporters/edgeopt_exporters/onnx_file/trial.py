"""A file and what became of it, run side by side: on ONNX Runtime, with the same inputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
import onnxruntime
from numpy.typing import NDArray

from edgeopt.canonical.copies import copied
from edgeopt.errors import EdgeoptError
from edgeopt.testing.programs import Program
from edgeopt.tracing.randomness import is_random
from edgeopt.tracing.subgraphs import all_nodes
from edgeopt_runtime.providers import RUNTIME_ERRORS

__all__ = ["Arrays", "Exported", "NotRun", "Original", "differences"]

Arrays: TypeAlias = "dict[str, NDArray[Any]]"

_SILENT = 4
_NOT_LOADED: tuple[type[Exception], ...] = (*RUNTIME_ERRORS, EdgeoptError)
# Sums in another order differ by some units in the last place; so many of the largest element are never asked about.
_UNITS = 2.0**11
# Beyond them the graph itself is asked what rounding does to it. The difference may be so many times larger.
_TIMES_NOISE = 32.0


class NotRun(Exception):  # noqa: N818  # it becomes a typed error, or a decision, where it is caught
    """ONNX Runtime does not run a model on some inputs; the message is the first line of its own."""


class Original:
    """The file as it was given, in evaluation mode.

    Args:
        model: It, or its path.
        loaded: The same, read.
        output: A tensor inside of it that is returned, too.
        open_axes: Axes of its inputs that take any size, whatever it says.

    Raises:
        NotRun: ONNX Runtime refuses it.
    """

    def __init__(
        self, model: Any, loaded: ir.Model, output: str | None, open_axes: Mapping[str, Mapping[int, str]]
    ) -> None:
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = _SILENT
        # Threads that wait busily cost more than a small file does.
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # What is not optimised is made in a fraction of the time, and is what the file says.
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        graphs = [loaded.graph, *(function.graph for function in loaded.functions.values())]
        nodes = [node for graph in graphs for node in all_nodes(graph)]
        self.random = sorted({node.op_type for node in nodes if is_random(node) and node.op_type != "Dropout"})
        training = any(node.op_type in _MODES and not node.domain for node in nodes)
        inner = output is not None and output not in [value.name for value in loaded.graph.outputs]
        as_it_is = isinstance(model, (str, os.PathLike)) and not (training or inner or open_axes)
        try:
            source = os.fspath(model) if as_it_is else _changed(loaded, output if inner else None, open_axes)
            self._session = onnxruntime.InferenceSession(source, settings, providers=["CPUExecutionProvider"])
        except RUNTIME_ERRORS as error:
            raise NotRun(_first_line(error)) from error
        self._inputs = [value.name for value in self._session.get_inputs()]

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> Arrays:
        """Outputs by name.

        Raises:
            NotRun: ONNX Runtime fails.
        """
        names = [value.name for value in self._session.get_outputs()]
        try:
            results = self._session.run(names, {name: feeds[name] for name in self._inputs if name in feeds})
        except RUNTIME_ERRORS as error:
            raise NotRun(_first_line(error)) from error
        found = dict(zip(names, results, strict=True))
        return {name: value for name, value in found.items() if isinstance(value, np.ndarray)}


class Exported:
    """The graph of evaluation that was made of a file, as a device runs it.

    Raises:
        NotRun: ONNX Runtime refuses it.
    """

    def __init__(self, model: ir.Model, state: Mapping[str, NDArray[Any]]) -> None:
        self.state = dict(state)
        try:
            self._program = Program(model)
        except _NOT_LOADED as error:
            raise NotRun(_first_line(error)) from error

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> Arrays:
        """Outputs by name.

        Raises:
            NotRun: ONNX Runtime fails.
        """
        return self._run({**self.state, **feeds})

    def noise(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """How far the outputs move when the last digits of everything that goes in do."""
        random = np.random.default_rng(0)
        values = {**self.state, **feeds}
        before, after = self._run(values), self._run({name: _nudged(array, random) for name, array in values.items()})
        return {name: _largest(_apart(before[name], after[name])) for name in before if _is_float(before[name])}

    def _run(self, values: Mapping[str, NDArray[Any]]) -> Arrays:
        try:
            return self._program.run(dict(values))
        except RUNTIME_ERRORS as error:
            raise NotRun(_first_line(error)) from error


def differences(
    expected: Arrays, found: Arrays, noise: Callable[[], Mapping[str, float]], *, shapes_only: bool = False
) -> list[str]:
    """One line for each output that is another one by more than rounding.

    Args:
        expected: What the file gives.
        found: What was made of it gives; outputs that the file lacks do not count.
        noise: How much rounding moves each output; asked only where something differs.
        shapes_only: Whether values do not count.
    """
    lines, moved = [], None
    for name in expected.keys() & found.keys():
        one, other = expected[name], found[name]
        if one.shape != other.shape:
            lines.append(f"output {name!r} has shape {list(other.shape)} instead of {list(one.shape)}")
            continue
        if shapes_only:
            continue
        if not _is_float(one):
            if not np.array_equal(one, other):
                lines.append(f"output {name!r} differs in {int(np.sum(one != other))} of {one.size} elements")
            continue
        error = _largest(_apart(one, other))
        finite = np.where(np.isfinite(one), one, 0).astype(np.float64)
        allowed = _UNITS * _epsilon(one.dtype) * _largest(finite)
        if error > allowed:
            moved = noise() if moved is None else moved
            allowed += _TIMES_NOISE * moved.get(name, 0.0)
            if not error <= allowed:
                lines.append(f"output {name!r} differs by {error:.2g}, where rounding explains {allowed:.2g}")
    return sorted(lines)


_MODES = frozenset({"BatchNormalization", "Dropout"})


def _changed(loaded: ir.Model, output: str | None, open_axes: Mapping[str, Mapping[int, str]]) -> bytes:
    """The file in evaluation mode, serialized."""
    copy = copied(loaded)
    for part in (copy.graph, *(function.graph for function in copy.functions.values())):
        for node in all_nodes(part):
            if not node.domain and node.op_type in _MODES:
                _evaluate(node)
    if output is not None:
        found = [value for node in copy.graph for value in node.outputs if value.name == output]
        copy.graph.outputs.extend(found[:1])
    for value in copy.graph.inputs:
        dims: list[Any] = [] if value.shape is None else list(value.shape)
        for axis, name in open_axes.get(value.name or "", {}).items():
            dims[axis] = name
        value.shape = None if value.shape is None else ir.Shape(dims)
    if open_axes:
        # What the file notes of sizes was true of the one size.
        for node in all_nodes(copy.graph):
            for value in node.outputs:
                value.shape = None
    return bytes(ir.serde.serialize_model(copy).SerializeToString())


def _evaluate(node: ir.Node) -> None:
    if node.op_type == "BatchNormalization":
        node.attributes.pop("training_mode", None)
        if len(node.outputs) > 1 and not any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
            node.resize_outputs(1)
    elif len(node.inputs) > 2:
        node.replace_input_with(2, None)


def _nudged(array: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    if not _is_float(array) or not array.size:
        return array
    signs = random.choice((-1.0, 1.0), array.shape)
    return np.asarray(array.astype(np.float64) * (1.0 + _epsilon(array.dtype) * signs)).astype(array.dtype)


def _apart(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.float64]:
    a, b = one.astype(np.float64), other.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        return np.where(same, 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf))


def _largest(array: NDArray[Any]) -> float:
    return float(np.max(np.abs(array), initial=0.0))


def _is_float(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "f"


def _epsilon(dtype: np.dtype[Any]) -> float:
    return float(np.finfo(dtype).eps)


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:300]
