"""What composing does with choices, names and parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import ParameterPatternError, SignatureError, UnsupportedOperatorError
from edgeopt.losses import MSE, CrossEntropy
from edgeopt.metrics import Accuracy
from edgeopt.optimizers import SGD, Adam
from edgeopt.schedules import WarmupLinear
from edgeopt.transforms import ClipByGlobalNorm, ClipByValue


class Parts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.classifier = nn.Linear(3, 4), nn.Linear(4, 2)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(torch.relu(self.backbone(x)))


def export(**settings: Any) -> edgeopt.Bundle:
    torch.manual_seed(0)
    return edgeopt.export(Parts(), torch.randn(4, 3), **{"loss": CrossEntropy(), "optimizer": SGD(lr=0.1), **settings})


def batch(size: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(size)
    return rng.standard_normal((size, 3)).astype(np.float32), rng.integers(0, 2, size)


def changed(session: Any, before: dict[str, np.ndarray]) -> set[str]:
    return {name for name, value in session.parameters().items() if not np.array_equal(value, before[name])}


def test_only_what_the_pattern_selects_is_trained() -> None:
    session = export(trainable="classifier.*", optimizer=Adam(lr=0.1)).session()
    before = session.parameters()
    session.step(batch())
    assert changed(session, before) == {"classifier.weight", "classifier.bias"}
    slots = [spec.parameter for spec in session.manifest.tensors if spec.role == "optimizer"]
    assert set(slots) == {"classifier.weight", "classifier.bias"}


def test_a_pattern_without_match_names_close_parameters() -> None:
    with pytest.raises(ParameterPatternError, match=r"'classifer\.\*' matches none.*classifier\.weight"):
        export(trainable=["backbone.*", "classifer.*"])


def test_operators_without_a_rule_are_listed_all_at_once() -> None:
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3, "mine" : 1]>
    odd (float[n, 2] x) => (float[n, 2] y) <float[2, 2] w = {1, 2, 3, 4}> {
        h = MatMul(x, w)
        first = ai.onnx.ml.Normalizer<norm = "L2">(h)
        second = mine.Own(h)
        y = Add(first, second)
    }
    """)
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("second", onnx.TensorProto.FLOAT, ["n", 2]))
    with pytest.raises(UnsupportedOperatorError) as caught:
        edgeopt.export(model, loss=MSE(), optimizer=SGD(lr=0.1))
    message = str(caught.value)
    assert "ai.onnx.ml::Normalizer" in message
    assert "mine::Own" in message
    assert "node" in message
    assert "trainable=" in message


def test_accumulated_microbatches_equal_one_batch() -> None:
    """Of unequal sizes, with ignored targets: sums and weights add, means would not."""
    settings = {"optimizer": Adam(lr=0.01), "transforms": [ClipByGlobalNorm(0.1)]}
    whole, parts = export(**settings).session(), export(**settings).session()
    for _ in range(3):
        x, y = batch(9)
        y[[1, 5]] = -100
        expected = whole.step((x, y))
        for piece in (slice(0, 2), slice(2, 3), slice(3, 9)):
            parts.accumulate((x[piece], y[piece]))
        metrics = parts.apply()
        assert metrics["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-5)
    for name, value in whole.state().items():
        np.testing.assert_allclose(parts.state()[name], value, atol=1e-6, err_msg=name)


def test_evaluation_averages_over_batches_by_weight() -> None:
    session = export(metrics=[Accuracy()]).session()
    x, y = batch(9)
    y[[0, 1]] = -100
    together = session.evaluate((x, y))
    apart = session.evaluate([(x[:2], y[:2]), (x[2:4], y[2:4]), (x[4:], y[4:])])
    assert together["loss"] == pytest.approx(apart["loss"], rel=1e-6)
    assert together["accuracy"] == pytest.approx(apart["accuracy"], rel=1e-6)


def test_hyperparameters_are_inputs_with_defaults() -> None:
    bundle = export(
        optimizer=SGD(lr=WarmupLinear(0.1, 2, 10), momentum=0.9),
        transforms=[ClipByValue(1.0), ClipByGlobalNorm(2.0), ClipByValue(3.0)],
    )
    assert {entry.name: entry.default for entry in bundle.manifest.hyperparameters} == {
        "schedule.lr": 0.1,
        "schedule.warmup_steps": 2.0,
        "schedule.total_steps": 10.0,
        "optimizer.momentum": 0.9,
        "clip_by_value.clip_value": 1.0,
        "clip_by_global_norm.max_norm": 2.0,
        "clip_by_value_2.clip_value": 3.0,
    }


def test_a_device_changes_the_learning_rate_without_an_export() -> None:
    slow, fast = export(optimizer=SGD(lr=0.01)).session(), export(optimizer=SGD(lr=0.5)).session()
    slow.set_hyper(lr=0.5)
    assert slow.step(batch())["lr"] == 0.5
    fast.step(batch())
    for name, value in fast.parameters().items():
        np.testing.assert_array_equal(slow.parameters()[name], value)


def test_a_target_named_like_an_input_is_refused() -> None:
    with pytest.raises(SignatureError, match=r"CrossEntropy\(target='...'\)"):
        export(loss=CrossEntropy(target="x"))


def test_two_metrics_of_one_name_are_refused() -> None:
    with pytest.raises(SignatureError, match="accuracy"):
        export(metrics=[Accuracy(), Accuracy()])


def test_exporting_twice_gives_the_same_bytes() -> None:
    assert export().to_bytes() == export().to_bytes()


def test_a_bare_layer_accumulates() -> None:
    """Its parameters are called just `weight` and `bias`, which must not meet names of our own."""
    session = edgeopt.export(nn.Linear(3, 2), torch.randn(4, 3), loss=MSE(), optimizer=SGD(lr=0.1)).session()
    x, y = np.ones((4, 3), np.float32), np.zeros((4, 2), np.float32)
    session.accumulate((x, y))
    assert session.apply()["lr"] == pytest.approx(0.1)


def test_names_that_meet_our_own_are_refused() -> None:
    module = nn.ModuleDict({"optimizer": nn.Linear(3, 2)})
    module["optimizer"].register_parameter("step", nn.Parameter(torch.ones(2)))
    module.forward = lambda x: module["optimizer"](x) * module["optimizer"].step
    with pytest.raises(SignatureError, match=r"optimizer\.step"):
        edgeopt.export(module, torch.randn(4, 3), loss=MSE(), optimizer=SGD(lr=0.1))


class Named(nn.Module):
    """One input and one output, called as the test wants."""

    def __init__(self, output: str) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.output = output

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {self.output: torch.relu(self.linear(x))}


def test_an_output_may_be_called_as_a_tensor_inside() -> None:
    """torch calls the layer's result `linear`, and so does the module its own output."""
    module = Named("linear")
    session = edgeopt.export(module, torch.randn(4, 3), loss=MSE(), optimizer=SGD(lr=0.1)).session()
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    expected = module(torch.from_numpy(x))["linear"].detach().numpy()
    np.testing.assert_allclose(np.asarray(session.predict(x)), expected, rtol=1e-6)
    assert np.isfinite(session.step((x, x))["loss"])


def test_names_that_meet_in_one_graph_are_refused_at_export() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, lr: torch.Tensor) -> torch.Tensor:
            return self.linear(lr)

    for module, name in ((Named("x"), "'x'"), (Scaled(), "'lr'")):
        with pytest.raises(SignatureError, match=f"would return {name}, which is also the name of an input"):
            edgeopt.export(module, torch.randn(4, 3), loss=MSE(), optimizer=SGD(lr=0.1))


def test_fused_operations_of_one_kind_are_numbered_as_their_hyperparameters_are() -> None:
    bundle: Any = export(transforms=[ClipByValue(1.0), ClipByGlobalNorm(2.0), ClipByValue(3.0)])
    model = onnx.load_from_string(bundle.graphs["step.onnx"])
    named = [function.name for function in model.functions if not function.name.startswith(("Chain", "ClipGrad"))]
    assert named == ["ClipByValue", "ClipByGlobalNorm", "ClipByValue_2", "SGD"]
