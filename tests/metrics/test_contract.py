"""What every metric keeps, over the registry. A new metric adds one row to CASES."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any, NamedTuple

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.losses import L1, ArraySpec, BCEWithLogits, CrossEntropy
from edgeopt.metrics import (
    AUROC,
    F1,
    MAE,
    METRIC,
    METRICS,
    MSE,
    R2,
    RMSE,
    Accuracy,
    AveragePrecision,
    ConfusionMatrix,
    CosineSimilarity,
    IoU,
    Metric,
    Perplexity,
    Precision,
    Recall,
    TopKAccuracy,
)
from edgeopt.optimizers import SGD


class Case(NamedTuple):
    metric: Metric
    labels: str  # what the targets are: "class", "event" or "real"


CASES = {
    "accuracy": Case(Accuracy(), "class"),
    "auroc": Case(AUROC(thresholds=30), "class"),
    "average_precision": Case(AveragePrecision(thresholds=30), "event"),
    "confusion_matrix": Case(ConfusionMatrix(normalize="all"), "class"),
    "cosine_similarity": Case(CosineSimilarity(), "real"),
    "f1": Case(F1(), "class"),
    "iou": Case(IoU(average="none"), "class"),
    "mae": Case(MAE(), "real"),
    "mse": Case(MSE(), "real"),
    "perplexity": Case(Perplexity(), "class"),
    "precision": Case(Precision(average="micro"), "event"),
    "r2": Case(R2(), "real"),
    "recall": Case(Recall(), "event"),
    "rmse": Case(RMSE(), "real"),
    "top_k_accuracy": Case(TopKAccuracy(2), "class"),
}
CLASSES = 3


@pytest.fixture(params=list(CASES.values()), ids=list(CASES))
def case(request):
    return request.param


def draws(case: Case, rows: int, dtype: Any = np.float32) -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    shape = (rows, CLASSES, 4)
    prediction = rng.normal(size=shape).astype(dtype)
    if case.labels == "class":
        labels = rng.integers(0, CLASSES, size=(rows, 4))
        return prediction, np.where(rng.random(labels.shape) < 0.2, -100, labels)
    target = rng.integers(0, 2, shape) if case.labels == "event" else rng.normal(size=shape)
    return prediction, target.astype(dtype)


def numbers(case: Case, xp: Any, arrays: Any) -> Any:
    sums = case.metric.sums(xp, *arrays)
    return case.metric.value(xp, sums)


def test_every_registered_metric_has_a_row_and_its_key():
    assert {name: type(case.metric) for name, case in CASES.items()} == METRICS
    assert {cls.name: cls for cls in METRICS.values()} == METRICS


def test_every_alias_leads_to_a_metric():
    assert all(METRIC.find(alias) is METRICS[name] for alias, name in METRIC.aliases.items())


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_sums_are_wide_and_of_fixed_shape(case, xp, dtype):
    shapes = []
    for rows in (2, 6):
        sums = case.metric.sums(xp, *(xp.asarray(array) for array in draws(case, rows, dtype)))
        assert {str(value.dtype).rpartition(".")[2] for value in sums.values()} <= {"float32", "float64"}
        if dtype == "float64":
            assert {str(value.dtype).rpartition(".")[2] for value in sums.values()} == {"float64"}
        shapes.append({name: tuple(value.shape) for name, value in sums.items()})
    assert shapes[0] == shapes[1]


def test_both_namespaces_agree(case, xp):
    arrays = draws(case, 7, np.float64)
    expected = numbers(case, numpy_namespace, arrays)
    found = numbers(case, xp, [xp.asarray(array) for array in arrays])
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_as_onnx_it_computes_the_same(case, run_as_onnx, dtype):
    def program(xp, arrays):
        sums = case.metric.sums(xp, *arrays.values())
        return {**sums, "value": case.metric.value(xp, sums)}

    inputs = {str(position): array for position, array in enumerate(draws(case, 6, dtype))}
    expected = program(numpy_namespace, inputs)
    tolerance = 1e-12 if dtype == np.float64 else 2e-5
    for name, result in run_as_onnx(program, inputs, batched=inputs).items():
        np.testing.assert_allclose(result, expected[name], rtol=tolerance, err_msg=name)


@pytest.mark.parametrize("cuts", [(1,), (0, 3, 3, 8), tuple(range(12))])
def test_no_cut_into_batches_matters(case, measured, cuts):
    arrays = draws(case, 12, np.float64)
    whole = measured(case.metric, *arrays)
    np.testing.assert_allclose(measured(case.metric, *arrays, cuts=cuts), whole, rtol=1e-11)


@pytest.mark.parametrize("metric", [case.metric for case in CASES.values() if case.labels == "class"], ids=repr)
def test_ignored_positions_do_not_count(metric, measured):
    prediction, target = draws(CASES["accuracy"], 8, np.float64)
    garbage = prediction.copy()
    garbage[np.broadcast_to(target[:, None] == -100, prediction.shape)] *= -30.0
    whole = measured(metric, prediction, target)
    np.testing.assert_array_equal(measured(metric, garbage, target), whole)
    assert np.isnan(np.asarray(measured(metric, prediction, np.full_like(target, -100)))).all()


class Scores(nn.Module):
    """Logits of three classes at each of four places."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of shape (batch, 3, 4)."""
        return self.layer(x).reshape(-1, CLASSES, 4)


def test_a_session_reports_it(case, measured):
    """Training steps report numbers, evaluation everything, over any cut, from the same sums."""
    torch.manual_seed(0)
    model = Scores()
    loss = {"class": CrossEntropy(), "event": BCEWithLogits(), "real": L1()}[case.labels]
    bundle = edgeopt.export(
        model, torch.zeros(2, 5), loss=loss, optimizer=SGD(0.0), metrics=[case.metric], verbose=False, check=False
    )
    session: Any = bundle.session()
    x = np.random.default_rng(1).normal(size=(9, 5)).astype(np.float32)
    _, target = draws(case, 9)
    expected = np.asarray(measured(case.metric, model(torch.from_numpy(x)).detach().numpy(), target), np.float64)
    found = session.evaluate([(x[:2], target[:2]), (x[2:], target[2:])])
    name = case.metric.reported
    np.testing.assert_allclose(found[name], expected, rtol=1e-4)
    step = session.step((x, target))
    assert (name in step) == (expected.ndim == 0)
    if expected.ndim == 0:
        assert isinstance(found[name], float)
        np.testing.assert_allclose(step[name], expected, rtol=1e-4)
    # The weights stand still, so that an epoch of training sees what evaluation does.
    epoch = session.fit([(x[:2], target[:2]), (x[2:], target[2:])], progress=False).epochs[0]
    for key in step.keys() - {"lr"}:
        assert epoch[key] == pytest.approx(found[key], rel=1e-5)


def test_is_a_value(case):
    assert replace(case.metric) == case.metric
    assert hash(replace(case.metric)) == hash(case.metric)
    assert pickle.loads(pickle.dumps(case.metric)) == case.metric


def test_the_label_is_what_it_is_called(case):
    assert replace(case.metric, label="mine").reported == "mine"
    with pytest.raises(ConfigurationError, match="label"):
        replace(case.metric, label="")


def test_what_does_not_fit_is_refused(case):
    prediction = ArraySpec("logits", "float32", ("batch", CLASSES, 4))
    wrong = ArraySpec("target", "int64" if case.labels == "class" else "float32", ("batch", 7))
    with pytest.raises(SignatureError, match=type(case.metric).__name__):
        case.metric.check(BCEWithLogits() if case.labels == "event" else None, prediction, [wrong])
    with pytest.raises(SignatureError, match=type(case.metric).__name__):
        case.metric.check(CrossEntropy(), prediction, [wrong, wrong])
