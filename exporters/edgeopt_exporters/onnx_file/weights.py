"""The weights of a file, wherever it keeps them, made inputs of the graph: parameters and running statistics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from edgeopt_exporters.onnx_file.evaluating import evaluated
from edgeopt_exporters.onnx_file.roles import Flow, Role, RoleGuess, is_statistic, role_of
from edgeopt_runtime.manifest import Decision

__all__ = ["Constant", "Weights", "decided", "lift_weights"]

# So many guesses are said one by one.
_MOST = 8


@dataclass(frozen=True)
class Constant:
    """A floating-point constant of a file, and what became of it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    guess: RoleGuess

    @property
    def role(self) -> str:
        """In a word or two: parameter, frozen parameter, statistic or setting."""
        return {Role.FROZEN: "frozen parameter"}.get(self.guess.role, self.guess.role.name.lower())

    @property
    def reason(self) -> str:
        """What speaks for the role."""
        return self.guess.reason

    @property
    def certain(self) -> bool:
        """Whether the role is no guess."""
        return self.guess.certain

    @property
    def elements(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    def to_dict(self) -> dict[str, Any]:
        """As plain strings, numbers and lists, for JSON."""
        facts = {"name": self.name, "dtype": self.dtype, "shape": list(self.shape)}
        return {**facts, "role": self.role, "reason": self.reason, "certain": self.certain}


def decided(constants: Sequence[Constant]) -> tuple[Decision, ...]:
    """What was guessed, for people; many guesses in one line."""
    guesses = [one for one in constants if not one.guess.certain and one.guess.role is not Role.SETTING]
    if len(guesses) <= _MOST:
        return tuple(
            Decision("role", one.name, f"guessed: {one.name} is {_said(one.guess.role)}; {one.guess.reason}", True)
            for one in guesses
        )
    parts = []
    for role in (Role.PARAMETER, Role.FROZEN):
        if names := [one.name for one in guesses if one.guess.role is role]:
            parts.append(f"{len(names)} constants are {_said(role, len(names))} ({', '.join(names)})")
    text = f"{' and '.join(parts)}, all guesses; `edgeopt inspect` of the file shows the reasons"
    return (Decision("role", guesses[0].name, text, warning=True),)


def _said(role: Role, count: int = 1) -> str:
    article, ending = ("a ", "") if count == 1 else ("", "s")
    return f"{article}parameter{ending}" + ("" if role is Role.PARAMETER else " that only `trainable` trains")


@dataclass(frozen=True)
class Weights:
    """What was taken out of the file, by name."""

    parameters: dict[str, NDArray[Any]] = field(default_factory=dict)
    statistics: dict[str, NDArray[Any]] = field(default_factory=dict)
    frozen: set[str] = field(default_factory=set)
    constants: list[Constant] = field(default_factory=list)


def lift_weights(graph: ir.Graph) -> Weights:
    """Make the weights of a graph, and of the bodies in it, inputs of the graph, in place.

    They may be initializers, Constant nodes, or ConstantOfShape nodes (weights left out of a file). Names are the
    file's own. A tensor that is used several times stays one parameter, as an embedding that is the output layer too,
    with two exceptions: running statistics belong to one BatchNormalization each; and a vector whose elements are all
    equal is taken for several that started alike, since exporters merge equal initializers.
    """
    weights = Weights()
    taken = _names(graph)
    flow = Flow(graph)
    for value, array, guess in _guessed(flow, graph):
        name, role = value.name or "", guess.role
        weights.constants.append(Constant(name, array.dtype.name, array.shape, guess))
        if role is Role.SETTING:
            continue
        statistics = [use for use in flow.uses(value) if is_statistic(use)]
        own = len(statistics) == 1 and role is Role.STATISTIC
        for use in [] if own and statistics[0].value is value else statistics:
            read = array if use.value is value else evaluated(use.value)
            part = "mean" if use.position == 3 else "var"
            separate = _free(name if own else f"{use.node.name}.running_{part}", set() if own else taken)
            if own:
                value.name = _free(f"{name}.in_the_file", taken)
            use.node.replace_input_with(use.position, _input(graph, separate, read))
            weights.statistics[separate] = read
        if role is Role.STATISTIC:
            if own and statistics[0].value is value:
                _replace(graph, value, _input(graph, name, array))
                weights.statistics[name] = array
            continue
        if _started_alike(array):
            for node, position in _readers(value)[1:]:
                if node.op_type == "Identity":
                    separate = node.outputs[0].name or ""
                    _replace(graph, node.outputs[0], _input(graph, separate, array))
                else:
                    separate = _free(f"{name}.{node.name}", taken)
                    node.replace_input_with(position, _input(graph, separate, array))
                _add(weights, separate, array, role)
        _replace(graph, value, _input(graph, name, array))
        _add(weights, name, array, role)
    return weights


def _guessed(flow: Flow, graph: ir.Graph) -> list[tuple[ir.Value, NDArray[Any], RoleGuess]]:
    """Every floating-point constant with its role.

    Where nothing else could be trained, weights that their values speak against are.
    """
    found = [(value, array, role_of(flow, value, array)) for value, array in _constants(graph)]
    if any(guess.role is Role.PARAMETER for _, _, guess in found):
        return found
    return [
        (value, array, guess if guess.otherwise is None else replace(guess, role=guess.otherwise, certain=False))
        for value, array, guess in found
    ]


def _add(weights: Weights, name: str, array: NDArray[Any], role: Role) -> None:
    weights.parameters[name] = array
    if role is Role.FROZEN:
        weights.frozen.add(name)


def _readers(value: ir.Value) -> list[tuple[ir.Node, int]]:
    """The nodes that read a tensor, those last that give it another name."""
    uses = [(node, position) for node, position in value.uses()]
    direct = [use for use in uses if use[0].op_type != "Identity"]
    renaming = [use for use in uses if use[0].op_type == "Identity"]
    return direct + [use for use in renaming if use[0].outputs[0].uses() or use[0].outputs[0].is_graph_output()]


def _started_alike(array: NDArray[Any]) -> bool:
    return array.ndim == 1 and array.size > 1 and bool((array == array.flat[0]).all())


def _constants(graph: ir.Graph) -> Iterator[tuple[ir.Value, NDArray[Any]]]:
    """Every floating-point constant of a graph and of the bodies in it."""
    yield from _initializers(graph)
    for node in ir.traversal.RecursiveGraphIterator(graph):
        if node.op_type in ("Constant", "ConstantOfShape") and not node.domain:
            array = _evaluate(node)
            if array is not None and _is_float(array.dtype):
                yield node.outputs[0], array
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from _initializers(attribute.as_graph())


def _initializers(graph: ir.Graph) -> Iterator[tuple[ir.Value, NDArray[Any]]]:
    for value in graph.initializers.values():
        if value.const_value is not None and value.const_value.dtype.is_floating_point():
            yield value, np.array(value.const_value.numpy())


def _evaluate(node: ir.Node) -> NDArray[Any] | None:
    if node.op_type == "Constant":
        tensor = ir.convenience.get_const_tensor(node.outputs[0])
        return None if tensor is None else np.array(tensor.numpy())
    shape = None if node.inputs[0] is None else ir.convenience.get_const_tensor(node.inputs[0])
    if shape is None:
        return None
    fill = node.attributes.get_tensor("value")
    return np.full(tuple(shape.numpy()), np.float32(0) if fill is None else fill.numpy().reshape(()))


def _is_float(dtype: np.dtype[Any]) -> bool:
    return ir.DataType.from_numpy(dtype).is_floating_point()


def _names(graph: ir.Graph) -> set[str]:
    nodes = list(ir.traversal.RecursiveGraphIterator(graph))
    values = [*graph.inputs, *graph.initializers.values(), *(value for node in nodes for value in node.outputs)]
    return {value.name or "" for value in values}


def _free(name: str, taken: set[str]) -> str:
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate


def _input(graph: ir.Graph, name: str, array: NDArray[Any]) -> ir.Value:
    dtype = ir.DataType.from_numpy(array.dtype)
    value = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(array.shape))
    graph.inputs.append(value)
    return value


def _replace(graph: ir.Graph, old: ir.Value, new: ir.Value) -> None:
    """Let an input stand for a constant; what held the constant goes away."""
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    node = old.producer()
    if node is not None and node.graph is not None:
        node.graph.remove(node, safe=True)
    elif old.graph is not None and old.name is not None and old.name in old.graph.initializers:
        del old.graph.initializers[old.name]
