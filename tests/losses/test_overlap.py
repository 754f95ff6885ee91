from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.losses import ArraySpec, Dice, Tversky


def overlap(logits, target, *, binary, dice, alpha=0.3, beta=0.7, smooth=1.0):
    """The definition, sample by sample and class by class, over the positions that count."""
    probability = torch.sigmoid(logits) if binary else torch.softmax(logits, 1)
    losses = []
    for sample in range(logits.shape[0]):
        for cls in range(logits.shape[1]):
            p, labels = probability[sample, cls], target[sample]
            if binary:
                t, counts = labels[cls], torch.ones_like(p, dtype=torch.bool)
            else:
                t, counts = (labels == cls).to(p.dtype), labels != -100
            p, t = p[counts], t[counts]
            if dice:
                losses.append(1 - (2 * (p * t).sum() + smooth) / (p.sum() + t.sum() + smooth))
            else:
                hits, false_alarms, misses = (p * t).sum(), (p * (1 - t)).sum(), ((1 - p) * t).sum()
                losses.append(1 - (hits + smooth) / (hits + alpha * false_alarms + beta * misses + smooth))
    return torch.stack(losses).mean()


@given(seed=st.integers(0, 2**32 - 1), binary=st.booleans(), smooth=st.sampled_from([0.1, 1.0]), dice=st.booleans())
def test_is_the_definition(assert_equals_torch, seed, binary, smooth, dice):
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(3, 4, 2, 5))
    if binary:
        target = np.round(rng.random(logits.shape))
    else:
        labels = rng.integers(0, 4, (3, 2, 5))
        target = np.where(rng.random(labels.shape) < 0.2, -100, labels)
    loss = Dice(binary=binary, smooth=smooth) if dice else Tversky(binary=binary, smooth=smooth)

    def reference(logits, target):
        return overlap(logits, target, binary=binary, dice=dice, smooth=smooth)

    assert_equals_torch(loss, reference, logits, target, rtol=1e-10)


def test_dice_is_tversky_with_equal_parts(xp):
    rng = np.random.default_rng(0)
    logits, mask = (xp.asarray(each) for each in (rng.normal(size=(2, 3, 7)), np.round(rng.random((2, 3, 7)))))
    dice, tversky = Dice(smooth=0.0, binary=True), Tversky(0.5, 0.5, smooth=0.0, binary=True)
    ours, other = (float(loss.terms(xp, logits, mask)[0]) for loss in (dice, tversky))
    np.testing.assert_allclose(ours, other, rtol=1e-13)


def test_a_label_that_is_no_class_shows(xp):
    total, _ = Dice().terms(xp, xp.asarray(np.zeros((1, 3, 2))), xp.asarray(np.array([[0, 3]])))
    assert np.isnan(float(total))


def test_logits_without_positions_are_refused():
    with pytest.raises(SignatureError, match="samples, classes and positions"):
        Dice().targets(ArraySpec("logits", "float32", ("batch", 3)))


@pytest.mark.parametrize("settings", [{"alpha": -1.0}, {"beta": -1.0}, {"smooth": -1.0}], ids=str)
def test_impossible_settings_are_refused(settings):
    (name,) = settings
    with pytest.raises(ConfigurationError, match=name):
        Tversky(**settings)
