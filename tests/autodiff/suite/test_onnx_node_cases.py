"""Gradients of every case that onnx ships for its operators, against differences in float64.

A case is differentiated where onnx put it. Where it sits on a kink, or outside the domain of its operator (a maximum
with ties, a ReLU at 0, a logarithm of 0), there is no derivative to compare with, and other values of the same shapes
take the place of the shipped ones; that it really is a kink is checked. What is refused has to be so with a reason,
and its operator must be listed here, so that no gradient gets lost unnoticed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx

from edgeopt.errors import GradientCheckError, UnsupportedModelError, UnsupportedOperatorError
from edgeopt.testing import check_gradients
from edgeopt.testing.programs import Program, load

# How many cases of each operator are refused, at most; releases of onnx differ in what they ship.
REFUSED = {
    # Types that the target opset lacks, in operators that are differentiated otherwise.
    "Celu": 2,
    "DequantizeLinear": 8,
    "Einsum": 3,
    "ReverseSequence": 1,
    "SpaceToDepth": 2,
    # A body whose carried value has no declared shape.
    "Range": 4,
    # A form that no later opset can say.
    "Scan": 1,
    # By their nature; the reason says more.
    "DynamicQuantizeLinear": 3,
    "ai.onnx.ml::ArrayFeatureExtractor": 1,
    "ai.onnx.ml::Binarizer": 1,
    "ai.onnx.ml::TreeEnsemble": 2,
    "ai.onnx.preview.training::Adagrad": 2,
    "ai.onnx.preview.training::Adam": 2,
    "ai.onnx.preview.training::Momentum": 3,
    "ai.onnx.preview::FlexAttention": 11,
}


def test_gradients(node_cases: list[Any], tally: Any) -> None:
    problems, refusals = [], []
    for case in node_cases:
        if not case.is_differentiable:
            tally.add("have no floating-point input or output")
            continue
        try:
            tally.add(differentiate(case))
        except (UnsupportedOperatorError, UnsupportedModelError) as refusal:
            tally.add("are refused", case.operator, reason(refusal))
            refusals.append(f"{case.name}: refused: {reason(refusal)}")
        except Exception as error:  # one report for all cases of an operator
            tally.add("FAILED")
            problems.append(f"{case.name}: {type(error).__name__}: {error}")
    if len(refusals) > REFUSED.get(node_cases[0].operator, 0):
        problems += refusals
    assert not problems, "\n".join(problems)


def reason(refusal: UnsupportedOperatorError | UnsupportedModelError) -> str:
    """The first reason, without the names of nodes."""
    lines = refusal.problems if isinstance(refusal, UnsupportedOperatorError) else str(refusal).split("\n  - ")[1:]
    return re.sub(r" \(nodes [^)]*\)| '[^']*'", "", lines[0] if lines else str(refusal))


def differentiate(case: Any) -> str:
    """Where the case was checked. Raises what `check_gradients` raises."""
    model, wrt = case.model, list(case.inputs)
    with np.errstate(invalid="ignore"):  # infinity less infinity, outside a domain
        try:
            check_gradients(model, case.inputs, wrt=wrt, directions=2)
            return "were checked at the values shipped"
        except (GradientCheckError, ValueError):  # of numpy, where a shape depends on the values
            if is_smooth(model, case.inputs):
                raise
        for inputs in other_values(case.inputs):
            if is_smooth(model, inputs):
                check_gradients(model, inputs, wrt=wrt, directions=2)
                return "were checked at other values: the ones shipped are on a kink or outside the domain"
    raise AssertionError("no smooth point was found")


def other_values(inputs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Values near the shipped ones, then in (0, 1), then above 1: one of them is inside every operator's domain."""
    random = np.random.default_rng(0)

    def near(x: Any) -> Any:
        shipped = np.asarray(x, np.float64)
        spread = 0.02 * max(1.0, float(np.abs(shipped).max(initial=0.0)))
        return shipped + spread * random.uniform(0.5, 1.5, shipped.shape) * random.choice([-1, 1], shipped.shape)

    yield {name: near(x) for name, x in inputs.items()}
    yield {name: random.uniform(0.1, 0.9, np.shape(x)) for name, x in inputs.items()}
    yield {name: random.uniform(1.1, 1.9, np.shape(x)) for name, x in inputs.items()}


def is_smooth(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> bool:
    """Whether slopes ahead and behind agree along a few directions."""
    double, values = load(model, inputs, {})
    program = Program(double)
    random = np.random.default_rng(1)
    names = [name for name, value in values.items() if value.dtype == np.float64]

    def outputs(values: dict[str, Any]) -> Any:
        results = [y for y in program.run(values).values() if y.dtype == np.float64]
        return np.concatenate([np.ravel(y) for y in results])

    here = outputs(values)
    for name in names * 3:
        step = 1e-6 * random.standard_normal(values[name].shape)
        ahead, behind = (outputs({**values, name: values[name] + sign * step}) for sign in (1, -1))
        if not ahead.shape == behind.shape == here.shape:
            return False
        jump, bend = np.abs(ahead - here), np.abs(ahead + behind - 2 * here) / 1e-6
        if not bool((np.maximum(jump, bend) <= 1e-3 * (1 + np.abs(here))).all()):
            return False
    return True
