"""Outputs that do not suit the loss are named; metrics check the targets before anything is traced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import onnx
import onnx.parser
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import SignatureError
from edgeopt.losses import MSE, NLL, BCEWithLogits, CrossEntropy, KLDivergence, Loss
from edgeopt.metrics import Accuracy, MeanMetric, Metric
from edgeopt.optimizers import SGD


def file(tail: str, width: int = 3) -> onnx.ModelProto:
    weights = ", ".join(str(value) for value in range(4 * width))
    return onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 17]>
    model (float[n, 4] x) => (float[n, {width}] y) <float[4, {width}] w = {{{weights}}}> {{
        logits = MatMul(x, w)
        {tail}
    }}
    """)


def export(model: Any, loss: Loss, **settings: Any) -> edgeopt.Bundle:
    return edgeopt.export(model, loss=loss, optimizer=SGD(0.1), verbose=False, **settings)


def warnings_of(tail: str, loss: Loss, width: int = 3) -> list[str]:
    bundle = export(file(tail, width), loss)
    return [entry.text for entry in bundle.decisions if entry.kind == "loss" and entry.warning]


SOFTMAX = "y = Softmax<axis = 1>(logits)"
WRITTEN = "e = Exp(logits) a = Constant<value_ints = [1]>() s = ReduceSum(e, a) y = Div(e, s)"
LOGISTIC = "m = Neg(logits) e = Exp(m) one = Constant<value_float = 1.0>() d = Add(one, e) y = Div(one, d)"
CLIPPED = """s = Sigmoid(logits) low = Constant<value_float = 0.0001>() high = Constant<value_float = 0.9999>()
    c = Clip(s, low, high) k = Constant<value_ints = [-1, WIDTH]>() y = Reshape(c, k)"""
MOVED = """p = Softmax<axis = 1>(logits) t = Transpose<perm = [1, 0]>(p) u = Transpose<perm = [1, 0]>(t)
    d = Cast<to = 11>(u) f = Cast<to = 1>(d) y = Identity(f)"""


@pytest.mark.parametrize(
    ("tail", "loss", "width", "operator"),
    [
        (MOVED, CrossEntropy(), 3, "Softmax"),
        ("y = Sigmoid(logits)", CrossEntropy(), 3, "Sigmoid"),
        ("y = HardSigmoid(logits)", BCEWithLogits(), 1, "HardSigmoid"),
        (LOGISTIC, BCEWithLogits(), 1, "a normalised exponential"),
        (CLIPPED.replace("WIDTH", "1"), BCEWithLogits(), 1, "Sigmoid"),
        ("y = LogSoftmax<axis = 1>(logits)", BCEWithLogits(), 3, "LogSoftmax"),
    ],
)
def test_probabilities_in_the_place_of_logits_are_named(tail: str, loss: Loss, width: int, operator: str) -> None:
    (text,) = warnings_of(tail, loss, width)
    assert f"is that of {operator} (node" in text
    assert "by output='logits' for a file" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("tail", "loss"),
    [
        ("y = LogSoftmax<axis = 1>(logits)", CrossEntropy()),
        ("p = Softmax<axis = 1>(logits) y = Log(p)", CrossEntropy()),
        ("y = Relu(logits)", CrossEntropy()),
        ("two = Constant<value_float = 2.0>() e = Exp(logits) y = Div(e, two)", CrossEntropy()),
        (SOFTMAX, MSE()),
        ("p = Softmax<axis = 1>(logits) y = MatMul(p, v)", CrossEntropy()),
    ],
)
def test_what_may_be_meant_is_not(tail: str, loss: Loss) -> None:
    weights = "" if "v)" not in tail else "v = Constant<value = float[3, 3] {1, 2, 3, 4, 5, 6, 7, 8, 9}>() "
    assert warnings_of(weights + tail, loss) == []


@pytest.mark.parametrize(
    ("tail", "operator"), [("y = Identity(logits)", "MatMul"), (SOFTMAX, "Softmax"), ("y = Sigmoid(logits)", "Sigmoid")]
)
@pytest.mark.parametrize("loss", [NLL(), KLDivergence()], ids=lambda loss: type(loss).__name__)
def test_what_is_surely_no_log_probabilities_is_named(tail: str, operator: str, loss: Loss) -> None:
    (text,) = warnings_of(tail, loss)
    assert f"expects log-probabilities, but the output 'y' is that of {operator} (node" in text


@pytest.mark.parametrize("tail", ["y = LogSoftmax<axis = 1>(logits)", "p = Softmax<axis = 1>(logits) y = Log(p)"])
def test_log_probabilities_are_not(tail: str) -> None:
    assert warnings_of(tail, NLL()) == []


def test_the_advice_helps() -> None:
    bundle = export(file(MOVED), CrossEntropy(), output="logits")
    assert not [entry for entry in bundle.decisions if entry.kind == "loss"]


@pytest.mark.parametrize(
    ("tail", "loss", "width"),
    [
        (SOFTMAX, CrossEntropy(), 3),
        ("p = Softmax<axis = 1>(logits) y = Identity(p)", CrossEntropy(), 3),
        (WRITTEN, CrossEntropy(), 3),
        ("l = LogSoftmax<axis = 1>(logits) y = Exp(l)", CrossEntropy(), 3),
        ("y = Sigmoid(logits)", BCEWithLogits(), 1),
    ],
)
def test_the_logits_of_a_file_are_found_and_predictions_stay(tail: str, loss: Loss, width: int) -> None:
    found, named = export(file(tail, width), loss), export(file(tail, width), loss, output="logits")
    (text,) = [entry.text for entry in found.decisions if entry.kind == "loss"]
    assert "reads 'logits', the logits that the file makes its output 'y' of" in text
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    target: Any = np.arange(5) % 3 if width == 3 else np.ones((5, 1), np.float32)
    sessions: list[Any] = [found.session(), named.session()]
    np.testing.assert_array_equal(sessions[0].predict(x), sessions[1].predict(x)["y"])
    losses = [[session.step({"x": x, "target": target})["loss"] for _ in range(3)] for session in sessions]
    assert losses[0] == losses[1]


def test_probabilities_in_evaluation_only() -> None:
    class Switching(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            return y if self.training else y.softmax(-1)

    bundle = export(Switching(4, 3), CrossEntropy(), example_inputs=torch.zeros(2, 4), check=False)
    (text,) = [entry.text for entry in bundle.decisions if entry.kind == "loss"]
    assert "is that of Softmax in evaluation mode" in text


def test_accuracy_of_one_logit_counts_signs() -> None:
    session: Any = export(file("y = Identity(logits)", 1), BCEWithLogits(), metrics=[Accuracy()]).session()
    x = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    y = (np.arange(9) % 3 == 0).astype(np.float32)[:, None]
    correct = ((session.predict(x) > 0) == (y > 0.5)).mean()
    assert 0 < correct < 1
    assert session.evaluate((x, y))["accuracy"] == pytest.approx(correct)
    assert session.step((x, y))["accuracy"] == pytest.approx(correct)


@pytest.mark.parametrize(
    ("loss", "metric", "why"),
    [
        (MSE(), Accuracy(), "counts classes, but the targets of MSE are float32 numbers"),
        (BCEWithLogits(), Accuracy(), "needs one logit for each position"),
        (CrossEntropy(), Accuracy(class_axis=0), r"give Accuracy\(class_axis=1\)"),
        (CrossEntropy(), Accuracy(class_axis=5), "class_axis=5, but the prediction has shape"),
    ],
)
def test_targets_without_classes_are_refused(loss: Loss, metric: Metric, why: str) -> None:
    with pytest.raises(SignatureError, match=why):
        export(file("y = Identity(logits)"), loss, metrics=[metric])


@dataclass(frozen=True)
class Own(MeanMetric):
    """The mean error, or something that is no sum."""

    name: ClassVar[str] = "own"
    kind: str = "right"

    def terms(self, xp: Any, prediction: Any, *targets: Any) -> tuple[Any, Any]:
        error = xp.abs(prediction - targets[0])
        if self.kind == "rows":
            return xp.sum(error, axis=1), xp.sum(xp.ones_like(error))
        return xp.sum(error), 1.0 if self.kind == "number" else xp.sum(xp.ones_like(error))


def test_a_metric_without_a_check_works() -> None:
    session: Any = export(file("y = Identity(logits)"), MSE(), metrics=[Own()]).session()
    x, y = np.ones((2, 4), np.float32), np.zeros((2, 3), np.float32)
    assert session.evaluate((x, y))["own"] == pytest.approx(np.abs(session.predict(x)).mean())


@pytest.mark.parametrize(("kind", "what"), [("rows", "sum"), ("number", "weight")])
def test_terms_that_are_no_scalars_are_refused(kind: str, what: str) -> None:
    with pytest.raises(SignatureError, match=f"Own must return a sum and a weight .* but its {what} is"):
        export(file("y = Identity(logits)"), MSE(), metrics=[Own(kind)])
