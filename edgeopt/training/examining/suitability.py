"""Whether the model gives what the loss takes its prediction for, as far as the graph shows it."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from edgeopt.losses.base import Expectation
from edgeopt.training.examining.decisions import decided
from edgeopt.training.forward import ForwardModel
from edgeopt.training.objective import Term
from edgeopt_runtime.manifest import Decision

__all__ = ["maker_of", "unsuitable_output"]

# Through these, numbers stay what they are, probabilities for instance.
_MOVES = frozenset(
    {"Cast", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"}
)
_PROBABILITIES = frozenset({"HardSigmoid", "Sigmoid", "Softmax"})
_LAYERS = frozenset({"Conv", "Gemm", "MatMul"})
# What is surely something else than the loss expects. Log-probabilities are scores of classes like others.
_UNSUITABLE: Mapping[Expectation, frozenset[str]] = {
    "values": frozenset(),
    "logits": _PROBABILITIES | {"LogSoftmax"},
    "scores": _PROBABILITIES,
    "log-probabilities": _PROBABILITIES | _LAYERS,
}


def unsuitable_output(model: ForwardModel, term: Term) -> list[Decision]:
    """A warning if an operator surely makes something else than a loss takes it for; in either mode, once."""
    output, loss = term.outputs[0], term.loss
    for graph, mode in ((model.train, ""), (model.evaluate, " in evaluation mode")):
        results = dict(zip(graph.outputs, graph.model.graph.outputs, strict=False))
        found = maker_of(results[output], _UNSUITABLE[loss.expects]) if output in results else None
        if found is not None:
            node, before = found
            operator = node.op_type if node.op_type in _UNSUITABLE[loss.expects] else "a normalised exponential"
            made = f"the output {output!r} is that of {operator}{mode} (node {node.name!r})"
            if loss.expects == "log-probabilities":
                text = (
                    f"{type(loss).__name__} expects log-probabilities, but {made}, so that its minimum lies elsewhere: "
                    "let the model end in LogSoftmax, or for labels take CrossEntropy, which normalises logits itself."
                )
            else:
                text = (
                    f"{type(loss).__name__} expects logits, but {made}, with which training is slow and stops early: "
                    f"let the loss read {before.name!r} in front of it, by output={before.name!r} for a file, by "
                    "returning it from forward for a module."
                )
            return [decided("loss", [output], text, warning=True)]
    return []


def maker_of(
    value: ir.Value, kinds: frozenset[str], passed: frozenset[str] = _MOVES
) -> tuple[ir.Node, ir.Value] | None:
    """The node that a tensor's numbers come from, with what it reads, if that is of one of the kinds.

    Args:
        value: The tensor.
        kinds: Operators. With "Softmax" among them a Softmax or Sigmoid that is written out in others counts as well.
        passed: Operators that are looked through.
    """
    node = value.producer()
    while node is not None and (node.op_type in passed or _bounds_probabilities(node)) and not node.domain:
        node = node.inputs[0].producer() if node.inputs[0] is not None else None
    if node is None or node.domain or node.inputs[0] is None:
        return None
    if node.op_type in kinds:
        return node, node.inputs[0]
    exponents = _normalised(node) if "Softmax" in kinds else None
    return None if exponents is None else (node, exponents)


def _bounds_probabilities(node: ir.Node) -> bool:
    """Whether a Clip keeps within [0, 1] what is there anyway, away from the ends where a logarithm is infinite."""
    if node.op_type != "Clip" or len(node.inputs) < 3 or None in node.inputs[1:3]:
        return False
    low, high = (ir.convenience.get_const_tensor(value) for value in node.inputs[1:3] if value is not None)
    return low is not None and high is not None and bool(low.numpy() >= 0) and bool(high.numpy() <= 1)


def _normalised(node: ir.Node) -> ir.Value | None:
    """The logits, if a node is the last one of a Softmax or Sigmoid that is written out; else None."""
    if node.op_type == "Exp":
        inner = _producer(node, 0, "LogSoftmax")
        return None if inner is None else inner.inputs[0]
    if node.op_type not in ("Div", "Reciprocal"):
        return None
    exponential, total = _producer(node, 0, "Exp"), _producer(node, 1, "ReduceSum", "Expand")
    while total is not None and total.op_type == "Expand":
        total = _producer(total, 0, "ReduceSum", "Expand")
    if exponential is not None and total is not None:
        return exponential.inputs[0] if total.inputs[0] is exponential.outputs[0] else None
    # 1 / (1 + exp(-x))
    below = _producer(node, len(node.inputs) - 1, "Add")
    parts = [] if below is None else [_producer(below, position, "Exp") for position in range(2)]
    exponential = next((part for part in parts if part is not None), None)
    ones = [node.inputs[0]] if node.op_type == "Div" else []
    ones += [] if below is None else [value for value in below.inputs if value not in _results(exponential)]
    if exponential is None or not all(_is_one(value) for value in ones):
        return None
    negated = _producer(exponential, 0, "Neg")
    return exponential.inputs[0] if negated is None else negated.inputs[0]


def _producer(node: ir.Node, position: int, *kinds: str) -> ir.Node | None:
    """The node that makes an input, if it is of one of the kinds."""
    value = node.inputs[position] if position < len(node.inputs) else None
    producer = None if value is None else value.producer()
    return producer if producer is not None and not producer.domain and producer.op_type in kinds else None


def _results(node: ir.Node | None) -> tuple[ir.Value, ...]:
    return () if node is None else tuple(node.outputs)


def _is_one(value: ir.Value | None) -> bool:
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return tensor is not None and tensor.size > 0 and bool((tensor.numpy() == 1).all())
