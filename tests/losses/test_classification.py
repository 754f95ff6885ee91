from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from edgeopt.errors import ConfigurationError
from edgeopt.losses import NLL, CrossEntropy, Focal, MultiMargin

seeds = st.integers(0, 2**32 - 1)
reductions = st.sampled_from(["mean", "sum"])
scales = st.sampled_from([0.1, 1.0, 30.0])


def drawn(seed, shape, scale, ignored):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, shape[1], (shape[0], *shape[2:]))
    return scale * rng.normal(size=shape), np.where(rng.random(labels.shape) < ignored, -100, labels)


def weights(seed, classes):
    return tuple(np.random.default_rng(seed).uniform(0.1, 3, classes).tolist())


@given(seed=seeds, scale=scales, reduction=reductions, weighted=st.booleans(), spatial=st.booleans())
def test_negative_log_likelihood_equals_torch(assert_equals_torch, seed, scale, reduction, weighted, spatial):
    scores, labels = drawn(seed, (5, 4, 3) if spatial else (5, 4), scale, 0.2)
    weight = weights(seed, 4) if weighted else None
    reference = partial(
        functional.nll_loss,
        weight=None if weight is None else torch.tensor(weight, dtype=torch.float64),
        reduction=reduction,
    )
    assert_equals_torch(NLL(weight, reduction=reduction), reference, scores, labels)


@given(
    seed=seeds,
    scale=scales,
    reduction=reductions,
    weighted=st.booleans(),
    p=st.sampled_from([1, 2]),
    margin=st.floats(0.1, 5),
)
def test_multi_margin_equals_torch(assert_equals_torch, seed, scale, reduction, weighted, p, margin):
    scores, labels = drawn(seed, (5, 4), scale, 0.0)
    weight = weights(seed, 4) if weighted else None
    reference = partial(
        functional.multi_margin_loss,
        p=p,
        margin=margin,
        weight=None if weight is None else torch.tensor(weight, dtype=torch.float64),
        reduction=reduction,
    )
    assert_equals_torch(MultiMargin(weight, p=p, margin=margin, reduction=reduction), reference, scores, labels)


def test_multi_margin_has_no_slope_at_its_kink(assert_equals_torch):
    assert_equals_torch(MultiMargin(), functional.multi_margin_loss, np.array([[1.0, 0.0, 3.0]]), np.array([0]))


def focal(logits, labels, *, gamma, weight, reduction):
    """Equation 5 of the paper, the labels' probabilities picked one by one."""
    log_probability = torch.log_softmax(logits, 1)
    total, positions = logits.new_zeros(()), 0
    for row, label in enumerate(labels.tolist()):
        if label != -100:
            p = log_probability[row, label].exp()
            total = total - (1.0 if weight is None else weight[label]) * (1 - p) ** gamma * p.log()
            positions += 1
    return total / positions if reduction == "mean" else total


@given(
    seed=seeds,
    scale=st.sampled_from([0.1, 1.0, 3.0]),
    reduction=reductions,
    weighted=st.booleans(),
    gamma=st.sampled_from([0.0, 1.0, 2.0, 3.5]),
)
def test_focal_is_the_papers_formula(assert_equals_torch, seed, scale, reduction, weighted, gamma):
    scores, labels = drawn(seed, (6, 4), scale, 0.2)
    labels[0] = 1  # one at least counts
    weight = weights(seed, 4) if weighted else None
    reference = partial(focal, gamma=gamma, weight=weight, reduction=reduction)
    assert_equals_torch(Focal(weight, gamma=gamma, reduction=reduction), reference, scores, labels, rtol=1e-9)


def test_focal_without_a_focus_is_cross_entropy(xp):
    scores, labels = map(xp.asarray, drawn(3, (6, 4), 30.0, 0.2))
    ours, plain = (loss.terms(xp, scores, labels) for loss in (Focal(gamma=0.0), CrossEntropy()))
    np.testing.assert_allclose([float(each) for each in ours], [float(each) for each in plain], rtol=1e-14)


@pytest.mark.parametrize(
    ("loss", "settings", "message"),
    [
        (Focal, {"gamma": 0.5}, "gamma must be 0 or at least 1"),
        (Focal, {"gamma": -1.0}, "gamma"),
        (MultiMargin, {"p": 3}, "p must be 1 or 2"),
        (MultiMargin, {"margin": 0.0}, "margin"),
        (NLL, {"weight": (1.0, -1.0)}, "weight"),
    ],
)
def test_impossible_settings_are_refused(loss, settings, message):
    with pytest.raises(ConfigurationError, match=message):
        loss(**settings)
