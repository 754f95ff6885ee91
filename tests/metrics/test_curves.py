"""Areas under curves beside scikit-learn's of the same scores, rounded down to the thresholds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import expit, softmax
from sklearn import metrics as sklearn

from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.losses import ArraySpec, CrossEntropy
from edgeopt.metrics import AUROC, AveragePrecision

AREAS = {AUROC: sklearn.roc_auc_score, AveragePrecision: sklearn.average_precision_score}
CUTS = st.lists(st.integers(0, 99), max_size=6).map(tuple)
SEED = st.integers(0, 2**32 - 1)
KINDS = st.sampled_from(list(AREAS))


def rounded(probability, thresholds):
    """The index of the last threshold that is not above it."""
    return np.searchsorted(np.linspace(0.0, 1.0, thresholds), probability, side="right")


@given(seed=SEED, kind=KINDS, cuts=CUTS, thresholds=st.sampled_from([2, 7, 200]))
def test_of_events(measured, seed, kind, cuts, thresholds):
    rng = np.random.default_rng(seed)
    target = rng.integers(0, 2, 40).astype(np.float64)
    assume(0 < target.sum() < 40)
    logits = 3 * rng.normal(size=40) + target
    expected = AREAS[kind](target, rounded(expit(logits), thresholds))
    np.testing.assert_allclose(measured(kind(thresholds), logits, target, cuts=cuts), expected, rtol=1e-11)


@given(seed=SEED, kind=KINDS, cuts=CUTS, classes=st.integers(2, 4))
def test_of_classes(measured, seed, kind, cuts, classes):
    """Each against the others; of two classes that of class 1; ignored positions out of it."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, (40, 2))
    ignored = rng.random(labels.shape) < 0.3
    logits = rng.normal(size=(40, classes, 2)) + 2 * np.moveaxis(np.eye(classes)[labels], -1, 1)
    right = labels[~ignored]
    scores = rounded(np.moveaxis(softmax(logits, axis=1), 1, -1)[~ignored], 50)
    assume(len(set(right.tolist())) == classes)
    each = [AREAS[kind](right == label, scores[:, label]) for label in range(classes)]
    given_labels = np.where(ignored, -100, labels)
    found = measured(kind(50, average="none"), logits, given_labels, cuts=cuts)
    np.testing.assert_allclose(found, each, rtol=1e-11)
    expected = each[1] if classes == 2 else np.mean(each)
    np.testing.assert_allclose(measured(kind(50), logits, given_labels, cuts=cuts), expected, rtol=1e-11)


@given(seed=SEED, kind=KINDS, cuts=CUTS)
def test_of_two_kinds_of_events(measured, seed, kind, cuts):
    rng = np.random.default_rng(seed)
    target = rng.integers(0, 2, (40, 2)).astype(np.float64)
    assume(all(0 < column.sum() < 40 for column in target.T))
    logits = rng.normal(size=(40, 2)) + target
    each = [AREAS[kind](target[:, n], rounded(expit(logits[:, n]), 200)) for n in range(2)]
    np.testing.assert_allclose(measured(kind(), logits, target, cuts=cuts), np.mean(each), rtol=1e-11)


@pytest.mark.parametrize("kind", AREAS, ids=lambda kind: kind.name)
def test_many_thresholds_come_close_to_the_exact_area(measured, kind):
    rng = np.random.default_rng(0)
    target = rng.integers(0, 2, 2000).astype(np.float64)
    logits = rng.normal(size=2000) + target
    assert measured(kind(), logits, target) == pytest.approx(AREAS[kind](target, logits), abs=1 / 200)


@pytest.mark.parametrize("kind", AREAS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_one_kind_of_sample_alone_has_no_area(measured, kind, value):
    assert np.isnan(measured(kind(), np.arange(5.0), np.full(5, value)))


@pytest.mark.parametrize("kind", AREAS, ids=lambda kind: kind.name)
def test_impossible_settings_are_refused(kind):
    for wrong in ({"thresholds": 1}, {"average": "micro"}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            kind(**wrong)
    with pytest.raises(SignatureError, match="there is one"):
        kind().check(CrossEntropy(), ArraySpec("x", "float32", ("n", 1)), [ArraySpec("y", "int64", ("n",))])
