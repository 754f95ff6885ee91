from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.losses import ArraySpec, CrossEntropy


def torch_cross_entropy(logits, labels, *, last, **settings):
    """torch's function, which wants the classes in axis 1."""
    return torch.nn.functional.cross_entropy(torch.movedim(logits, -1, 1) if last else logits, labels, **settings)


@given(data=st.data())
def test_equals_torch(assert_equals_torch, data):
    draw = data.draw
    batch, classes = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    spatial = draw(st.lists(st.integers(1, 3), max_size=2))
    last = draw(st.booleans())
    smoothing = draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    ignore = draw(st.sampled_from([-100, -1, 0, classes]))
    reduction = draw(st.sampled_from(["mean", "sum"]))
    weight = draw(st.none() | st.lists(st.floats(0.1, 3), min_size=classes, max_size=classes))
    scale = draw(st.sampled_from([0.1, 1.0, 30.0]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    logits = scale * rng.normal(size=(batch, *spatial, classes) if last else (batch, classes, *spatial))
    labels = np.where(rng.random((batch, *spatial)) < 0.2, ignore, rng.integers(0, classes, (batch, *spatial)))
    reference = partial(
        torch_cross_entropy,
        last=last,
        weight=None if weight is None else torch.tensor(weight, dtype=torch.float64),
        label_smoothing=smoothing,
        ignore_index=ignore,
        reduction=reduction,
    )
    loss = CrossEntropy(weight, smoothing, ignore, class_axis=-1 if last else 1, reduction=reduction)
    assert_equals_torch(loss, reference, logits, labels)


def test_has_the_defaults_of_torch(assert_equals_torch):
    rng = np.random.default_rng(0)
    assert_equals_torch(
        CrossEntropy(), torch.nn.functional.cross_entropy, rng.normal(size=(4, 3)), np.array([0, -100, 2, 1])
    )


def test_one_sample_without_a_batch(assert_equals_torch):
    logits, label = np.array([0.3, -2.0, 1.0]), np.array(2)
    assert_equals_torch(CrossEntropy(class_axis=0), torch.nn.functional.cross_entropy, logits, label)


@pytest.mark.parametrize("offset", [-1e4, 1e4])
def test_large_logits_lose_no_more_than_their_own_rounding(xp, offset):
    logits = np.array([[0.0, 1.0, -2.0], [3.0, 0.5, 0.25]]) + offset
    labels = np.array([2, 1])
    total, weight = CrossEntropy().terms(xp, xp.asarray(logits, dtype=xp.float32), xp.asarray(labels))
    expected = torch.nn.functional.cross_entropy(torch.tensor(logits), torch.tensor(labels))
    np.testing.assert_allclose(float(total / weight), float(expected), atol=2 * np.spacing(np.float32(1e4)))


def test_masked_classes_stay_out(assert_equals_torch):
    logits = np.array([[0.5, -np.inf, 1.0], [-np.inf, 2.0, -1.0]])
    assert_equals_torch(CrossEntropy(), torch.nn.functional.cross_entropy, logits, np.array([0, 1]))


@pytest.mark.parametrize("settings", [{}, {"weight": (1.0, 2.0, 3.0)}, {"label_smoothing": 0.1}], ids=str)
def test_nothing_labelled_gives_zero_terms_and_a_mean_of_nan_as_in_torch(xp, settings):
    labels = np.array([-100, -100])
    total, weight = CrossEntropy(**settings).terms(xp, xp.asarray(np.ones((2, 3))), xp.asarray(labels))
    assert (float(total), float(weight)) == (0.0, 0.0)
    assert torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor(labels)).isnan()


@pytest.mark.parametrize("bad", [3, -1, -(2**40), 2**40])
def test_a_label_that_is_no_class_shows_and_harms_no_other_gradient(assert_equals_torch, bad):
    import array_api_compat.torch as xp

    logits = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows, labels = logits.clone().requires_grad_(), torch.tensor([0, bad, 2])
    total, weight = CrossEntropy().terms(xp, rows, labels)
    assert total.isnan()
    assert float(weight) == 3.0
    total.backward()

    kept = logits[[0, 2]].clone().requires_grad_()
    torch.nn.functional.cross_entropy(kept, labels[[0, 2]], reduction="sum").backward()
    assert rows.grad is not None
    torch.testing.assert_close(rows.grad[[0, 2]], kept.grad)
    assert not rows.grad[1].any()


def test_class_weights_may_be_any_sequence_or_array():
    expected = CrossEntropy(weight=(1.0, 0.5))
    weights: list[Any] = [[1, 0.5], np.array([1.0, 0.5]), torch.tensor([1.0, 0.5])]
    for weight in weights:
        assert CrossEntropy(weight=weight) == expected
        assert hash(CrossEntropy(weight=weight)) == hash(expected)


def test_labels_have_the_logits_shape_without_the_classes():
    logits = ArraySpec("logits", "float32", ("batch", "time", 50))
    expected = ArraySpec("target", "int64", ("batch", "time"), classes=50, ignored=-100)
    assert CrossEntropy(class_axis=-1).targets(logits) == (expected,)
    expected = ArraySpec("target", "int64", (8,), classes=10, ignored=3)
    assert CrossEntropy(ignore_index=3).targets(ArraySpec("y", "float32", (8, 10))) == (expected,)


@pytest.mark.parametrize(
    ("loss", "shape", "message"),
    [
        (CrossEntropy(), ("batch",), "class_axis=1"),
        (CrossEntropy(class_axis=-3), ("batch", 10), "class_axis=-3"),
        (CrossEntropy(), ("batch", "classes"), "fixed number of classes"),
        (CrossEntropy(weight=(1.0, 2.0)), ("batch", 3), "2 class weights"),
    ],
)
def test_unfit_logits_are_refused(loss, shape, message):
    with pytest.raises(SignatureError, match=message):
        loss.targets(ArraySpec("logits", "float32", shape))


@pytest.mark.parametrize(
    "settings",
    [
        {"label_smoothing": -0.1},
        {"label_smoothing": 1.1},
        {"weight": (1.0, -1.0)},
        {"weight": ()},
        {"weight": 2.0},
        {"weight": "heavy"},
        {"weight": (1.0, "x")},
    ],
    ids=str,
)
def test_impossible_settings_are_refused(settings):
    (name,) = settings
    with pytest.raises(ConfigurationError, match=name):
        CrossEntropy(**settings)
