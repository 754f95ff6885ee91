from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeopt.metrics import Accuracy


def terms(metric, xp, logits, labels):
    total, weight = metric.terms(xp, xp.asarray(logits), xp.asarray(labels))
    assert total.shape == weight.shape == ()
    assert total.dtype == weight.dtype == xp.asarray(logits).dtype
    return float(total), float(weight)


@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(1, 5),
    classes=st.integers(1, 5),
    spatial=st.lists(st.integers(1, 3), max_size=2),
    last=st.booleans(),
)
def test_counts_matches_among_labelled_positions(xp, seed, batch, classes, spatial, last):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(batch, *spatial, classes)).astype(np.float32)
    labels = rng.integers(0, classes, size=(batch, *spatial))
    labels[rng.random(labels.shape) < 0.3] = -100

    positions = zip(logits.reshape(-1, classes), labels.reshape(-1), strict=True)
    matches = [max(range(classes), key=row.__getitem__) == label for row, label in positions if label != -100]

    arranged = logits if last else np.moveaxis(logits, -1, 1)
    measured = terms(Accuracy(class_axis=-1 if last else 1), xp, np.ascontiguousarray(arranged), labels)
    assert measured == (sum(matches), len(matches))


def test_as_onnx_it_computes_the_same(run_as_onnx):
    def program(xp, arrays):
        total, weight = Accuracy().terms(xp, arrays["logits"], arrays["labels"])
        return {"total": total, "weight": weight}

    inputs = {"logits": np.eye(4, 3, dtype=np.float32), "labels": np.array([0, 1, 1, -100])}
    assert run_as_onnx(program, inputs, batched=inputs) == {"total": 2.0, "weight": 3.0}


def test_an_ignored_class_does_not_count(xp):
    logits = np.eye(3, dtype=np.float32)
    assert terms(Accuracy(ignore_index=2), xp, logits, np.array([0, 2, 2])) == (1.0, 1.0)


def test_other_labels_that_are_no_class_are_wrong(xp):
    assert terms(Accuracy(), xp, np.eye(3, dtype=np.float32), np.array([0, 7, -1])) == (1.0, 3.0)


def test_the_first_of_equal_logits_wins(xp):
    assert terms(Accuracy(), xp, np.zeros((2, 3), np.float32), np.array([0, 1])) == (1.0, 2.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nothing_labelled_weighs_nothing(xp, dtype):
    assert terms(Accuracy(), xp, np.zeros((2, 3), dtype), np.array([-100, -100])) == (0.0, 0.0)


def test_one_logit_against_a_probability_counts_sides(xp):
    logits = np.asarray([[1.5], [-0.5], [0.0], [2.0]], np.float32)
    targets = np.asarray([[1.0], [0.0], [0.0], [0.2]], np.float32)
    assert terms(Accuracy(), xp, logits, targets) == (3.0, 4.0)
