"""What onnxruntime-training 1.19 got wrong, crashed on or refused: each a small model with the right values here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional

import edgeopt
from edgeopt import tracing as xp
from edgeopt.errors import ConfigurationError
from edgeopt.losses import L1, MSE, ArraySpec, BCEWithLogits, CrossEntropy, Loss
from edgeopt.optimizers import SGD
from edgeopt.testing import check_gradients
from edgeopt.tracing import IR_VERSION, op

Array = np.ndarray[Any, Any]


def normal(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape)


def model(opset: int, signature: str, body: str, initializers: str = "") -> onnx.ModelProto:
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> case {signature} {initializers} {{ {body} }}'
    return onnx.parser.parse_model(text)


def check(opset: int, signature: str, body: str, *inputs: Array, initializers: str = "") -> dict[str, float]:
    return check_gradients(model(opset, signature, body, initializers), list(inputs))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_conv_auto_pad_was_ignored(auto_pad: str, stride: int) -> None:
    body = f'y = Conv<auto_pad = "{auto_pad}", strides = [{stride}, {stride}]>(x, w)'
    signature = "(float[1, 2, 6, 6] x, float[4, 2, 3, 3] w) => (float[1, 4, h, v] y)"
    check(11, signature, body, normal(1, 2, 6, 6), normal(4, 2, 3, 3))


def test_average_pool_dilations_were_ignored() -> None:
    body = "y = AveragePool<kernel_shape = [2, 2], dilations = [2, 2]>(x)"
    check(19, "(float[1, 1, 5, 5] x) => (float[1, 1, 3, 3] y)", body, normal(1, 1, 5, 5))


def test_where_did_not_reduce_a_broadcast_branch(make_step: Callable[..., Any]) -> None:
    condition = np.random.default_rng(0).random((2, 3, 4)) > 0.5
    step = make_step(lambda x: op.Where(x.tracer.constant(condition), x, np.float32(0)), [(1, 3, 1)])
    gradient = step.run([np.ones((1, 3, 1), np.float32)], np.ones((2, 3, 4), np.float32))[1]
    np.testing.assert_array_equal(gradient, condition.sum((0, 2)).reshape(1, 3, 1))


@pytest.mark.parametrize("operator", ["ScatterElements", "ScatterND"])
def test_scatter_ignored_that_it_adds(operator: str, make_step: Callable[..., Any]) -> None:
    """The data under an added update still counts."""
    places = np.asarray([[1], [1]])

    def scattered(x: Any, updates: Any) -> Any:
        return getattr(op, operator)(x, x.tracer.constant(places), updates, reduction="add")

    updates = np.ones((2, 1) if operator == "ScatterElements" else (2, 2), np.float32)
    cotangent = np.asarray([[1.0, 2.0], [3.0, 4.0]], np.float32)
    step = make_step(scattered, [(2, 2), updates.shape])
    _, to_x, to_updates = step.run([np.zeros((2, 2), np.float32), updates], cotangent)
    np.testing.assert_array_equal(to_x, cotangent)
    expected = [[3.0], [3.0]] if operator == "ScatterElements" else [[3.0, 4.0], [3.0, 4.0]]
    np.testing.assert_array_equal(to_updates, expected)


def test_clip_with_limits_as_attributes_was_the_identity() -> None:
    """Up to opset 10; outside the limits nothing passes."""
    check(10, "(float[5] x) => (float[5] y)", "y = Clip<min = -0.5, max = 0.5>(x)", np.asarray([-2, -0.4, 0, 0.4, 2.0]))


def test_frozen_batch_norm_was_forced_to_the_statistics_of_the_batch(make_step: Callable[..., Any]) -> None:
    mean, variance = np.asarray([1.0, 2.0], np.float32), np.asarray([4.0, 0.25], np.float32)
    step = make_step(
        lambda x, w, b: op.BatchNormalization(x, w, b, mean, variance, epsilon=0.0),
        [(3, 2), (2,), (2,)],
    )
    x, w, cotangent = (a.astype(np.float32) for a in (normal(3, 2), normal(2), normal(3, 2) + 1))
    _, to_x, to_w, to_b = step.run([x, w, w], cotangent)
    np.testing.assert_allclose(to_x, cotangent * w / np.sqrt(variance), rtol=1e-5)
    np.testing.assert_allclose(to_w, (cotangent * (x - mean) / np.sqrt(variance)).sum(0), rtol=1e-5)
    np.testing.assert_allclose(to_b, cotangent.sum(0), rtol=1e-5)


def export(module: nn.Module, example: torch.Tensor, loss: Loss | None = None) -> edgeopt.Bundle:
    return edgeopt.export(module, example, loss=loss or MSE(), optimizer=SGD(lr=0.1))


def test_evaluation_of_a_trained_batch_norm_was_no_valid_model() -> None:
    module = nn.BatchNorm1d(2)
    graphs: Any = export(module, torch.zeros(4, 2)).graphs
    evaluate = onnx.load_from_string(graphs["evaluate.onnx"])
    onnx.checker.check_model(evaluate, full_check=True)
    (norm,) = (node for node in evaluate.graph.node if node.op_type == "BatchNormalization")
    assert len(norm.output) == 1


def test_scale_and_bias_of_equal_values_were_made_one() -> None:
    body = "y = BatchNormalization<training_mode = 0>(x, scale, bias, mean, variance)"
    values = "<float[2] scale = {1, 1}, float[2] bias = {1, 1}, float[2] mean = {1, 1}, float[2] variance = {1, 1}>"
    errors = check(15, "(float[3, 2] x) => (float[3, 2] y)", body, normal(3, 2), initializers=values)
    assert {"x", "scale", "bias"} <= set(errors)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_layer_norm_with_one_output(bias: bool) -> None:
    """As every exporter writes it at opset 17."""
    operands, inputs = ("x, w, b", 3) if bias else ("x, w", 2)
    signature = ", ".join(["float[2, 3, 4] x", "float[4] w", "float[4] b"][:inputs])
    body = f"y = LayerNormalization<axis = -1>({operands})"
    check(17, f"({signature}) => (float[2, 3, 4] y)", body, *[normal(2, 3, 4), normal(4), normal(4)][:inputs])


def test_split_with_an_unused_output() -> None:
    body = "unused, y = Split<axis = 2, num_outputs = 2>(x)"
    check(18, "(float[2, 3, 4] x) => (float[2, 3, 2] y)", body, normal(2, 3, 4))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad_with_axes(mode: str) -> None:
    body = f'y = Pad<mode = "{mode}">(x, pads, , axes)'
    values = "<int64[4] pads = {1, 0, 2, 1}, int64[2] axes = {2, -3}>"
    check(18, "(float[2, 3, 4] x) => (float[3, 3, 7] y)", body, normal(2, 3, 4), initializers=values)


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("operator", ["ReduceL2", "ReduceLogSumExp"])
def test_reductions_that_drop_their_axes(operator: str, opset: int) -> None:
    body = f"y = {operator}<axes = [0, 2], keepdims = 0>(x)"
    check(opset, "(float[4, 3, 2] x) => (float[3] y)", body, normal(4, 3, 2))


def test_slice_backwards_to_an_end_far_away() -> None:
    values = "<int64[1] starts = {-1}, int64[1] ends = {-100}, int64[1] axes = {1}, int64[1] steps = {-2}>"
    body = "y = Slice(x, starts, ends, axes, steps)"
    check(13, "(float[2, 5] x) => (float[2, 3] y)", body, normal(2, 5), initializers=values)


def test_transpose_without_a_permutation() -> None:
    check(13, "(float[2, 3, 4] x) => (float[4, 3, 2] y)", "y = Transpose(x)", normal(2, 3, 4))


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("inputs", [3, 4])
@pytest.mark.parametrize(("operator", "gates"), [("LSTM", 4), ("GRU", 3)])
def test_recurrent_layers_with_few_inputs(operator: str, gates: int, inputs: int, direction: str) -> None:
    """They crashed with fewer than seven inputs, and were refused backwards."""
    count = 2 if direction == "bidirectional" else 1
    w, r, b = [count, 2 * gates, 3], [count, 2 * gates, 2], [count, 4 * gates]
    signature = ", ".join([f"float[4, 2, 3] x, float{w} w, float{r} r", f"float{b} b"][: inputs - 2])
    body = f'y = {operator}<hidden_size = 2, direction = "{direction}">({", ".join("xwrb"[:inputs])})'
    shapes = [[4, 2, 3], w, r, b][:inputs]
    check(14, f"({signature}) => (float[4, {count}, 2, 2] y)", body, *(0.5 * normal(*shape) for shape in shapes))


@pytest.mark.parametrize("operator", ["LSTM", "GRU"])
def test_recurrent_layers_with_frozen_weights(operator: str) -> None:
    """They ended the process; the gradient with respect to the sequence needs no other."""
    gates = {"LSTM": 4, "GRU": 3}[operator]
    signature = f"(float[3, 2, 2] x, float[1, {2 * gates}, 2] w, float[1, {2 * gates}, 2] r) => (float[3, 1, 2, 2] y)"
    case = model(14, signature, f"y = {operator}<hidden_size = 2>(x, w, r)")
    inputs = [normal(3, 2, 2), normal(1, 2 * gates, 2), normal(1, 2 * gates, 2)]
    assert set(check_gradients(case, inputs, wrt=["x"])) == {"x"}


def test_the_exponent_of_a_power_and_a_denominator() -> None:
    positive = np.abs(normal(2, 3)) + 0.5
    check(13, "(float[2, 3] x, float[3] y) => (float[2, 3] z)", "z = Pow(x, y)", positive, normal(3))
    check(13, "(float[2, 3] x, float[3] y) => (float[2, 3] z)", "z = Div(x, y)", normal(2, 3), positive[0])


class WithUnused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(3, 2), nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.used(x), x[:, :2] * self.unused


def test_a_trainable_parameter_beside_the_loss_stays_as_it_is() -> None:
    """It was an error; its gradient is zero."""
    session = export(WithUnused(), torch.zeros(4, 3)).session()
    session.step({"x": np.ones((4, 3), np.float32), "target": np.ones((4, 2), np.float32)})
    np.testing.assert_array_equal(session.parameters()["unused"], [1.0, 1.0])


def check_loss(make_step: Callable[..., Any], loss: Loss, prediction: Array, target: Array, expected: Any) -> None:
    """Value and gradient of a loss in a graph, against torch's."""

    def mean(prediction: Any) -> Any:
        total, weight = loss.terms(xp, prediction, target)
        return total / weight

    prediction = prediction.astype(np.float32)
    tensor = torch.tensor(prediction, requires_grad=True)
    wanted = expected(tensor, torch.tensor(target))
    wanted.backward()
    assert tensor.grad is not None
    value, gradient = make_step(mean, [prediction.shape]).run([prediction], np.float32(1))
    np.testing.assert_allclose(value, wanted.item(), rtol=1e-5)
    np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-5, atol=1e-7)


def test_class_weights_as_an_array(make_step: Callable[..., Any]) -> None:
    weight: Any = np.asarray([0.5, 1.0, 2.0], np.float32)
    loss = CrossEntropy(weight=weight)
    labels = np.asarray([0, 2, 1, 2])
    check_loss(
        make_step, loss, normal(4, 3), labels, lambda x, y: functional.cross_entropy(x, y, weight=torch.tensor(weight))
    )


@pytest.mark.parametrize("loss", [MSE, L1, BCEWithLogits], ids=lambda loss: loss.__name__)
def test_a_loss_that_is_not_reduced_is_refused_clearly(loss: Any) -> None:
    """Nothing can be minimised then. As nodes of a model such losses have gradients like any other."""
    with pytest.raises(ConfigurationError, match="reduction must be 'mean' or 'sum', got 'none'"):
        loss(reduction="none")


def test_cross_entropy_of_images(make_step: Callable[..., Any]) -> None:
    """Labels have the shape of the logits without the classes, and not without the last axis."""
    loss = CrossEntropy()
    assert loss.targets(ArraySpec("logits", "float32", (2, 5, 3, 4)))[0].shape == (2, 3, 4)
    labels = np.random.default_rng(0).integers(0, 5, (2, 3, 4))
    check_loss(make_step, loss, normal(2, 5, 3, 4), labels, functional.cross_entropy)


def test_binary_cross_entropy_of_a_large_logit(make_step: Callable[..., Any]) -> None:
    """It was infinite, and its gradients NaN."""
    logits, labels = np.asarray([100.0, -100.0, 0.5]), np.asarray([0.0, 1.0, 1.0], np.float32)
    check_loss(make_step, BCEWithLogits(), logits, labels, functional.binary_cross_entropy_with_logits)


def test_graphs_are_written_in_the_version_that_runtimes_read() -> None:
    """And not in the newest one that the installed onnx knows."""
    graphs: Any = export(nn.Linear(3, 2), torch.zeros(4, 3)).graphs
    models = {name: onnx.load_from_string(graph) for name, graph in graphs.items()}
    assert {name: graph.ir_version for name, graph in models.items()} == dict.fromkeys(models, IR_VERSION)
    assert IR_VERSION <= 9


def test_gradients_with_respect_to_inputs() -> None:
    """Where only those of parameters could be had."""
    case = model(17, "(float[2, 3] x) => (float[2, 2] y)", "y = MatMul(x, w)", "<float[3, 2] w = {1, 2, 3, 4, 5, 6}>")
    assert set(check_gradients(case, [normal(2, 3)], wrt=["x"])) == {"x"}
