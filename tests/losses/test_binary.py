from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import hinge_loss
from torchvision.ops import sigmoid_focal_loss

from edgeopt.errors import ConfigurationError
from edgeopt.losses import BinaryFocal, Hinge


@given(
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([0.1, 1.0, 5.0]),
    hard=st.booleans(),
    alpha=st.sampled_from([-1.0, 0.0, 0.25, 1.0]),
    gamma=st.sampled_from([0.0, 1.0, 2.0]),
    reduction=st.sampled_from(["mean", "sum"]),
)
def test_focal_equals_torchvision(assert_equals_torch, seed, scale, hard, alpha, gamma, reduction):
    rng = np.random.default_rng(seed)
    logits, target = scale * rng.normal(size=(4, 3)), rng.random((4, 3))
    reference = partial(sigmoid_focal_loss, alpha=alpha, gamma=gamma, reduction=reduction)
    loss = BinaryFocal(alpha, gamma, reduction=reduction)
    assert_equals_torch(loss, reference, logits, np.round(target) if hard else target, rtol=1e-10)


@pytest.mark.parametrize("logit", [-200.0, -40.0, 40.0, 200.0])
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_focal_is_finite_at_large_logits(xp, logit, label):
    prediction = xp.asarray(np.array([logit], np.float32))
    total, _ = BinaryFocal().terms(xp, prediction, xp.asarray(np.array([label], np.float32)))
    weight = 0.25 if label else 0.75
    hopeless = (logit > 0) != bool(label)
    np.testing.assert_allclose(float(total), weight * abs(logit) if hopeless else 0.0, rtol=1e-6, atol=1e-30)


@given(seed=st.integers(0, 2**32 - 1), zero_one=st.booleans())
def test_hinge_equals_scikit_learn(xp, seed, zero_one):
    rng = np.random.default_rng(seed)
    scores, labels = 2 * rng.normal(size=20), np.sign(rng.normal(size=20))
    total, weight = Hinge().terms(xp, xp.asarray(scores), xp.asarray(np.maximum(labels, 0) if zero_one else labels))
    np.testing.assert_allclose(float(total / weight), hinge_loss(labels, scores, labels=[-1, 1]), rtol=1e-12)


@pytest.mark.parametrize("squared", [False, True])
def test_slope_of_hinge(assert_equals_torch, squared):
    def reference(scores, labels):
        excess = torch.relu(1 - labels * scores)  # whose slope at 0 is 0
        return (excess**2 if squared else excess).mean()

    scores, labels = np.array([1.0, -1.0, 0.3, -3.0, 2.0]), np.array([1.0, -1.0, -1.0, 1.0, 1.0])
    assert_equals_torch(Hinge(squared), reference, scores, labels)


@pytest.mark.parametrize("settings", [{"alpha": 1.5}, {"gamma": 0.5}], ids=str)
def test_impossible_settings_are_refused(settings):
    (name,) = settings
    with pytest.raises(ConfigurationError, match=name):
        BinaryFocal(**settings)
