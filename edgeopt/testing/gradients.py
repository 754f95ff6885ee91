"""Gradients against central differences, in float64, on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from edgeopt.autodiff import backward
from edgeopt.canonical.copies import copied
from edgeopt.errors import GradientCheckError, SignatureError
from edgeopt.testing.programs import Model, Program, Tensors, load
from edgeopt.tracing import Array, Tracer, new_graph, new_model
from edgeopt.tracing.shapes import Shape

__all__ = ["check_gradients"]

_EPSILON = float(np.finfo(np.float64).eps)


def check_gradients(
    model: Model,
    inputs: Mapping[str, Any] | Sequence[Any],
    *,
    wrt: Iterable[str] | None = None,
    order: int = 1,
    tolerance: float = 1e-6,
    directions: int = 3,
    seed: int = 0,
    step: float = 1e-6,
    shapes: Mapping[str, Shape] | None = None,
) -> dict[str, float]:
    """Compare the gradients that edgeopt derives for a model with central differences, all in float64.

    The outputs are projected on random numbers to one scalar, whose derivative along random directions of each tensor
    is taken both ways. Floating-point tensors of the model become float64; dropout masks are the same throughout.

    Args:
        model: An ONNX model, its path, or a function of traced arrays that returns one or more of them.
        inputs: Values of the inputs, by name or in order.
        wrt: Inputs and initializers to check; by default every floating-point one.
        order: 2 checks the gradient of the gradient in its place, and so on.
        tolerance: Largest error, relative to the gradient's norm; the differences' own rounding error is allowed for.
        directions: How many random directions are tried for each tensor.
        seed: Seeds projections and directions.
        step: How far the differences reach, for tensors of order one. In a large network some Relu or maximum changes
            sides within 1e-6 in almost every direction; 1e-8 is better there.
        shapes: For a function, the shapes to trace it with where they are not the values' own: dimensions may have
            names.

    Returns:
        The largest relative error for each tensor.

    Raises:
        GradientCheckError: An error above the tolerance. The message names the tensor and, where one node's own
            gradient is wrong, that node.
        SignatureError: `inputs` or `wrt` do not fit the model.
        UnsupportedOperatorError: The model holds operators without a gradient rule.
    """
    double, values = load(model, inputs, shapes or {})
    names = _names_to_check(values, wrt)
    for _ in range(order - 1):
        double, values, names = _next_order(double, values, names, seed)
    # At x of order one, the usual step costs 1e-12 in truncation and 1e-10 in rounding.
    settings = _Settings(tolerance, seed, step)
    check = _Check(double, values, names, settings)
    errors = {name: max(check.error(name) for _ in range(directions)) for name in names}
    worst = max(errors, key=lambda name: errors[name], default=None)
    if worst is not None and not errors[worst] <= tolerance:
        culprit = _wrong_node(double, values, settings)
        raise GradientCheckError(
            f"The gradient with respect to {worst!r} differs from its central difference by {errors[worst]:.1e} of its "
            f"norm (allowed: {tolerance:.1e}). {culprit}"
        )
    return errors


class _Settings(NamedTuple):
    tolerance: float
    seed: int
    step: float


class _Check:
    """Gradients and a scalar function of one model."""

    def __init__(self, model: ir.Model, values: Tensors, names: Sequence[str], settings: _Settings) -> None:
        # First of all, so that operators without a rule are named before one without a kernel fails.
        gradient_model, cotangents, found = _gradient_model(model, names)
        self._random = np.random.default_rng(settings.seed)
        self._forward = Program(model)
        self._values = values
        self._settings = settings
        outputs = self._forward.run(values)
        self._projection = {
            # Infinities, which masks are made of, and NaN have no derivative to compare.
            name: np.where(np.isfinite(output), self._random.standard_normal(output.shape), 0.0)
            for name, output in outputs.items()
            if name in cotangents and output.dtype == np.float64
        }
        # Rounding of the scalar itself, divided by the step, is no error of a gradient however small.
        total = sum(float(np.abs(term).sum()) for term in self._terms(outputs))
        self._least_scale = 4 * _EPSILON * (total + 1) / settings.step / settings.tolerance
        given = {cotangents[name]: r for name, r in self._projection.items()}
        # A model without outputs, where nothing has an influence, is none that ONNX Runtime loads.
        gradients = Program(gradient_model).run({**values, **given}) if found else {}
        self._gradients = {name: gradients[output] for name, output in found.items()}

    def _scalar(self, values: Tensors) -> float:
        return sum(float(term.sum()) for term in self._terms(self._forward.run(values)))

    def _terms(self, outputs: Tensors) -> Iterator[NDArray[Any]]:
        for name, projection in self._projection.items():
            yield projection * np.where(projection == 0, 0.0, outputs[name])

    def error(self, name: str) -> float:
        """The relative error along one more random direction."""
        here = self._values[name]
        direction = self._random.standard_normal(here.shape)
        step = self._settings.step * max(1.0, float(np.abs(here).max(initial=0.0)))
        numeric = self._slope(name, direction, step)
        gradient = self._gradients.get(name, np.zeros_like(here))
        exact = float((gradient * direction).sum())
        # numpy's maximum is NaN if one of them is, and then no error is small enough.
        scale = float(np.max([np.linalg.norm(gradient), abs(numeric), self._least_scale]))
        if not abs(exact - numeric) <= self._settings.tolerance * scale:
            # Where numbers are large and so is the step, its square may be what differs; extrapolation removes it.
            numeric = (4 * numeric - self._slope(name, direction, 2 * step)) / 3
        return abs(exact - numeric) / scale

    def _slope(self, name: str, direction: NDArray[Any], step: float) -> float:
        here = self._values[name]
        ahead, behind = (self._scalar({**self._values, name: here + s * direction}) for s in (step, -step))
        return (ahead - behind) / (2 * step)


def _names_to_check(values: Tensors, wrt: Iterable[str] | None) -> list[str]:
    floats = [name for name, value in values.items() if value.dtype == np.float64]
    names = floats if wrt is None else list(wrt)
    if unknown := set(names) - set(floats):
        raise SignatureError(f"No floating-point input or initializer is named {', '.join(sorted(unknown))}.")
    return names


def _gradient_model(model: ir.Model, names: Sequence[str]) -> tuple[ir.Model, dict[str, str], dict[str, str]]:
    """A model of the gradients, which takes the outputs' cotangents too.

    Also the names of these inputs by the model's outputs, and those of the gradients by tensor.
    """
    copy = copied(model)
    tracer = Tracer(copy.graph)
    if lists := [value.name for value in copy.graph.outputs if not isinstance(value.type, (ir.TensorType, type(None)))]:
        raise SignatureError(f"The model returns sequences or optional values, which have no gradient: {lists}.")
    outputs = [value for value in copy.graph.outputs if value.dtype == ir.DataType.DOUBLE]
    taken = {value.name for value in copy.graph.inputs}
    cotangents = {value.name or "": _free(f"cotangent.{value.name}", taken) for value in outputs}
    seeds = {
        value: tracer.input(cotangents[value.name or ""], np.float64, tracer.wrap(value).shape) for value in outputs
    }
    by_name = {value.name: value for value in copy.graph.inputs}
    gradients = backward(tracer, seeds, [by_name[name] for name in names])
    copy.graph.outputs.clear()
    found = {}
    for name, gradient in zip(names, gradients, strict=True):
        if gradient is not None:
            found[name] = tracer.fresh_name(f"gradient.{name}")
            tracer.output(gradient, found[name])
    return copy, cotangents, found


def _free(name: str, taken: Container[str | None]) -> str:
    while name in taken:
        name = f"{name}'"
    return name


def _next_order(
    model: ir.Model, values: Tensors, names: Sequence[str], seed: int
) -> tuple[ir.Model, Tensors, list[str]]:
    """The gradients as a model of their own, to be differentiated again, also with respect to the cotangents."""
    random = np.random.default_rng(seed)
    gradients, cotangents, _ = _gradient_model(model, names)
    outputs = Program(model).run(values)
    given = {name: random.standard_normal(outputs[output].shape) for output, name in cotangents.items()}
    return gradients, {**values, **given}, [*names, *given]


def _wrong_node(model: ir.Model, values: Tensors, settings: _Settings) -> str:
    """A sentence about the first node whose own gradient is wrong at the values it sees."""
    everything = copied(model)
    graph = everything.graph
    graph.outputs[:] = [value for node in graph for value in node.outputs if value.name]
    seen = {**values, **Program(everything).run(values)}
    for name, value in graph.initializers.items():
        if value.const_value is not None:
            seen[name] = value.const_value.numpy()
    for node in copied(model).graph:
        operands = {value.name: value for value in node.inputs if value is not None and value.name in seen}
        floats = [name or "" for name in operands if seen[name or ""].dtype == np.float64]
        if node.op_type == "Constant" or not floats:
            continue
        alone = _alone(node, seen)
        check = _Check(alone, seen, floats, settings)
        for name in floats:
            error = check.error(name)
            if not error <= settings.tolerance:
                return (
                    f"The first node whose own gradient is wrong is {node.op_type} {node.name!r}: with respect to its "
                    f"input {name!r} by {error:.1e}."
                )
    return "The gradient of each node by itself is right."


def _alone(node: ir.Node, seen: Tensors) -> ir.Model:
    """A model of one node, its integer operands as constants."""
    tracer = Tracer(new_graph("alone"))
    operands: list[Any] = []
    arrays: dict[str, Array] = {}
    for value in node.inputs:
        name = None if value is None else value.name
        if name is None:
            operands.append(None)
            continue
        if name not in arrays:
            known = seen[name]
            is_float = known.dtype == np.float64
            arrays[name] = tracer.input(name, known.dtype, known.shape) if is_float else tracer.constant(known)
        operands.append(arrays[name])
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    results = tracer.emit(node.op_type, *operands, outputs=len(node.outputs), **attributes)
    for position, result in enumerate(results):
        tracer.output(result, tracer.fresh_name(f"output_{position}"))
    return new_model(tracer.graph)
