"""Metrics of classes and events, over random cuts into batches, beside scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn

from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.losses import ArraySpec, BCEWithLogits, CrossEntropy
from edgeopt.metrics import F1, ConfusionMatrix, IoU, Perplexity, Precision, Recall, TopKAccuracy

SCORES = {
    Precision: sklearn.precision_score,
    Recall: sklearn.recall_score,
    F1: sklearn.f1_score,
    IoU: sklearn.jaccard_score,
}
ANY_CUTS = st.lists(st.integers(0, 99), max_size=6).map(tuple)
SEED = st.integers(0, 2**32 - 1)
KINDS = st.sampled_from(sorted(SCORES, key=lambda kind: kind.name))


def labelled(seed, classes, rows=23, places=2):
    """Logits with the classes along axis 1, labels, some of them ignored, and both for the positions that count."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes, places))
    # Some classes are never there.
    labels = rng.integers(0, rng.integers(1, classes + 1), size=(rows, places))
    labels = np.where(rng.random(labels.shape) < 0.2, -100, labels)
    counted = labels.reshape(-1) != -100
    flat = np.moveaxis(logits, 1, -1).reshape(-1, classes)
    return logits, labels, flat[counted], labels.reshape(-1)[counted]


@given(seed=SEED, kind=KINDS, cuts=ANY_CUTS, classes=st.integers(2, 6), average=st.sampled_from(["macro", "micro"]))
def test_averages_over_classes_are_those_of_scikit_learn(measured, seed, kind, cuts, classes, average):
    logits, labels, flat, right = labelled(seed, classes)
    predicted = flat.argmax(1)
    expected = SCORES[kind](right, predicted, average=average, zero_division=0)
    found = measured(kind(average), logits, labels, cuts=cuts)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@given(seed=SEED, kind=KINDS, cuts=ANY_CUTS, classes=st.integers(2, 6))
def test_each_class_is_that_of_scikit_learn_or_nan_where_it_is_nowhere(measured, seed, kind, cuts, classes):
    logits, labels, flat, right = labelled(seed, classes)
    predicted = flat.argmax(1)
    everywhere = list(range(classes))
    expected = SCORES[kind](right, predicted, labels=everywhere, average=None, zero_division=0)
    somewhere = np.isin(everywhere, np.concatenate([right, predicted]))
    found = measured(kind("none"), logits, labels, cuts=cuts)
    np.testing.assert_allclose(found, np.where(somewhere, expected, np.nan), rtol=1e-12)


@given(seed=SEED, kind=KINDS, cuts=ANY_CUTS, threshold=st.sampled_from([0.2, 0.5, 0.9]))
def test_events_of_one_kind_are_binary(measured, seed, kind, cuts, threshold):
    rng = np.random.default_rng(seed)
    logits, target = rng.normal(size=31), rng.integers(0, 2, 31).astype(np.float64)
    predicted = torch.sigmoid(torch.tensor(logits)).numpy() > threshold
    expected = SCORES[kind](target, predicted, zero_division=0)
    for shape in ((31,), (31, 1)):
        found = measured(kind(threshold=threshold), logits.reshape(shape), target.reshape(shape), cuts=cuts)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@given(seed=SEED, kind=KINDS, cuts=ANY_CUTS)
def test_two_classes_are_binary(measured, seed, kind, cuts):
    logits, labels, flat, right = labelled(seed, 2)
    if not (right.any() or flat.argmax(1).any()):
        return
    expected = SCORES[kind](right, flat.argmax(1), zero_division=0)
    for average in ("auto", "binary"):
        np.testing.assert_allclose(measured(kind(average), logits, labels, cuts=cuts), expected, rtol=1e-12)


@given(seed=SEED, kind=KINDS, cuts=ANY_CUTS, average=st.sampled_from(["macro", "micro", "none"]))
def test_several_kinds_of_events_are_several_labels(measured, seed, kind, cuts, average):
    rng = np.random.default_rng(seed)
    logits, target = rng.normal(size=(31, 4)), rng.integers(0, 2, (31, 4)).astype(np.float64)
    expected = SCORES[kind](target, logits > 0, average=None if average == "none" else average, zero_division=0)
    np.testing.assert_allclose(measured(kind(average), logits, target, cuts=cuts), expected, rtol=1e-12)
    if average == "macro":
        np.testing.assert_allclose(measured(kind(), logits, target, cuts=cuts), expected, rtol=1e-12)


@given(seed=SEED, cuts=ANY_CUTS, classes=st.integers(2, 6), normalize=st.sampled_from([None, "true", "pred", "all"]))
def test_the_confusion_matrix_is_that_of_scikit_learn(measured, seed, cuts, classes, normalize):
    logits, labels, flat, right = labelled(seed, classes)
    matrix = sklearn.confusion_matrix(right, flat.argmax(1), labels=range(classes), normalize=normalize)
    found = measured(ConfusionMatrix(normalize), logits, labels, cuts=cuts)
    # scikit-learn has 0 where a row or column is empty.
    np.testing.assert_allclose(np.nan_to_num(found), matrix, rtol=1e-12)
    assert found.shape == (classes, classes)


def test_events_have_a_confusion_matrix_of_two_classes(measured):
    logits, target = np.asarray([2.0, -1.0, 3.0, -2.0, 1.0]), np.asarray([1.0, 1.0, 0.0, 0.0, 1.0])
    np.testing.assert_array_equal(
        measured(ConfusionMatrix(), logits, target, cuts=(2,)), sklearn.confusion_matrix(target, logits > 0)
    )


@given(seed=SEED, cuts=ANY_CUTS, k=st.integers(1, 4))
def test_top_k_is_that_of_scikit_learn(measured, seed, cuts, k):
    logits, labels, flat, right = labelled(seed, 4)
    expected = sklearn.top_k_accuracy_score(right, flat, k=k, labels=range(4)) if k < 4 else 1.0
    np.testing.assert_allclose(measured(TopKAccuracy(k), logits, labels, cuts=cuts), expected, rtol=1e-12)


def test_the_first_of_equal_logits_come_first_and_nan_is_wrong(measured):
    equal, labels = np.zeros((4, 4)), np.arange(4)
    for k in (1, 2, 3):
        assert measured(TopKAccuracy(k), equal, labels) == k / 4
    assert measured(TopKAccuracy(2), np.full((4, 4), np.nan), labels) == 0.0
    assert TopKAccuracy(3).reported == "top_3_accuracy"


@given(seed=SEED, cuts=ANY_CUTS)
def test_perplexity_is_that_of_torch(measured, seed, cuts):
    logits, labels, _, _ = labelled(seed, 5)
    loss = torch.nn.functional.cross_entropy(torch.tensor(logits), torch.tensor(labels))
    np.testing.assert_allclose(measured(Perplexity(), logits, labels, cuts=cuts), np.exp(float(loss)), rtol=1e-12)
    last = np.ascontiguousarray(np.moveaxis(logits, 1, -1))
    of_last = measured(Perplexity(class_axis=-1), last, labels, cuts=cuts)
    np.testing.assert_allclose(of_last, np.exp(float(loss)), rtol=1e-12)


def test_perplexity_of_many_classes_picks_scores(measured):
    logits, labels, _, _ = labelled(3, 200)
    loss = torch.nn.functional.cross_entropy(torch.tensor(logits), torch.tensor(labels))
    np.testing.assert_allclose(measured(Perplexity(), logits, labels), np.exp(float(loss)), rtol=1e-12)


def test_counts_go_beyond_what_float32_can_hold_exactly(run_as_onnx):
    """A batch of 2^25 + 2 positions: one by one float32 would stop at 2^24."""
    target = np.ones(2**25 + 2, np.float32)

    def program(xp, arrays):
        return F1().sums(xp, arrays["logits"], arrays["target"])

    found = run_as_onnx(program, {"logits": target, "target": target})
    assert all(abs(float(value[0]) / len(target) - 1) < 1e-7 for value in found.values())


@pytest.mark.parametrize("metric", [F1(), IoU("none"), TopKAccuracy(1), ConfusionMatrix()], ids=repr)
def test_half_precision_counts_beyond_2048(metric, measured):
    logits = np.tile(np.asarray([[0.0, 1.0]], np.float16), (5000, 1))
    sums = metric.sums(np, logits, np.ones(5000, np.int64))
    assert max(float(np.max(value)) for value in sums.values()) == 5000


def test_what_cannot_be_counted_is_refused():
    three = ArraySpec("logits", "float32", ("batch", 3))
    labels, events = ArraySpec("target", "int64", ("batch",)), ArraySpec("target", "float32", ("batch", 3))
    with pytest.raises(SignatureError, match="class 1 of two, and there are 3"):
        F1("binary").check(CrossEntropy(), three, [labels])
    with pytest.raises(SignatureError, match="k=4, but there are 3"):
        TopKAccuracy(4).check(CrossEntropy(), three, [labels])
    for metric in (Perplexity(), TopKAccuracy(2), ConfusionMatrix()):
        with pytest.raises(SignatureError, match=r"(?i)classes"):
            metric.check(BCEWithLogits(), three, [events])
    unknown = ArraySpec("logits", "float32", ("batch", "kinds"))
    with pytest.raises(SignatureError, match="tells kinds of events apart"):
        F1().check(BCEWithLogits(), unknown, [unknown])
    F1("micro").check(BCEWithLogits(), unknown, [unknown])
    for wrong in ({"average": "weighted"}, {"threshold": 0.0}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            F1(**wrong)
    with pytest.raises(ConfigurationError, match="normalize"):
        ConfusionMatrix("rows")  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(ConfigurationError, match="k must be"):
        TopKAccuracy(0)
