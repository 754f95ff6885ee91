from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import mean_pinball_loss
from torch.nn import functional

from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.losses import L1, MSE, ArraySpec, BCEWithLogits, Huber, LogCosh, Quantile, SmoothL1

shapes = st.lists(st.integers(1, 4), max_size=4).map(tuple)
seeds = st.integers(0, 2**32 - 1)
reductions = st.sampled_from(["mean", "sum"])
scales = st.sampled_from([1e-3, 1.0, 100.0])


def normal(seed, shape, scale):
    return np.asarray(scale * np.random.default_rng(seed).normal(size=shape))


@given(shape=shapes, seed=seeds, scale=scales, reduction=reductions)
@pytest.mark.parametrize(("loss", "reference"), [(MSE, functional.mse_loss), (L1, functional.l1_loss)])
def test_differences_equal_torch(assert_equals_torch, loss, reference, shape, seed, scale, reduction):
    prediction, target = normal(seed, shape, scale), normal(seed + 1, shape, scale)
    assert_equals_torch(loss(reduction=reduction), partial(reference, reduction=reduction), prediction, target)


@given(shape=shapes, seed=seeds, scale=scales, reduction=reductions, delta=st.floats(1e-3, 100))
def test_huber_equals_torch(assert_equals_torch, shape, seed, scale, reduction, delta):
    prediction, target = normal(seed, shape, scale), normal(seed + 1, shape, scale)
    reference = partial(functional.huber_loss, reduction=reduction, delta=delta)
    assert_equals_torch(Huber(delta, reduction=reduction), reference, prediction, target)


@pytest.mark.parametrize("loss", [MSE(), L1(), Huber(1.0)])
def test_slopes_where_the_pieces_meet(assert_equals_torch, loss):
    reference = {MSE: functional.mse_loss, L1: functional.l1_loss, Huber: functional.huber_loss}[type(loss)]
    assert_equals_torch(loss, reference, np.array([-1.0, 0.0, 1.0, 2.0]), np.array([0.0, 0.0, 0.0, 2.0]))


def test_huber_is_finite_where_a_square_is_not(xp):
    total, _ = Huber(1.0).terms(xp, xp.asarray([1e30], dtype=xp.float32), xp.asarray([0.0], dtype=xp.float32))
    np.testing.assert_allclose(float(total), 1e30, rtol=1e-6)


@given(
    shape=shapes,
    seed=seeds,
    scale=scales,
    reduction=reductions,
    hard=st.booleans(),
    weight=st.none() | st.floats(0.1, 10) | st.just("each"),
)
def test_binary_equals_torch(assert_equals_torch, shape, seed, scale, reduction, hard, weight):
    target = np.asarray(np.random.default_rng(seed + 1).random(shape))
    target = np.round(target) if hard else target
    if weight == "each":
        weight = np.random.default_rng(seed + 2).uniform(0.1, 10, shape[-1:])
    reference = partial(
        functional.binary_cross_entropy_with_logits,
        reduction=reduction,
        pos_weight=None if weight is None else torch.tensor(weight, dtype=torch.float64),
    )
    # torch drops to a looser sum of the same terms with pos_weight; 1e-10 leaves it room at logits of hundreds.
    assert_equals_torch(
        BCEWithLogits(weight, reduction=reduction), reference, normal(seed, shape, scale), target, rtol=1e-10
    )


@pytest.mark.parametrize("weight", [None, 3.0])
@pytest.mark.parametrize("logit", [-1e4, -100.0, 0.0, 100.0, 1e4])
@pytest.mark.parametrize("label", [0.0, 0.25, 1.0])
def test_binary_is_exact_at_extreme_logits_and_at_zero(assert_equals_torch, logit, label, weight):
    reference = partial(
        functional.binary_cross_entropy_with_logits, pos_weight=None if weight is None else torch.tensor(weight)
    )
    assert_equals_torch(BCEWithLogits(weight), reference, np.array([logit]), np.array([label]), rtol=1e-14)
    assert_equals_torch(
        BCEWithLogits(weight), reference, np.array([logit], np.float32), np.array([label], np.float32), rtol=1e-6
    )


@pytest.mark.parametrize("loss", [MSE(), L1(), Huber(), BCEWithLogits()], ids=lambda loss: type(loss).__name__)
def test_a_target_of_another_rank_is_refused_instead_of_broadcast(loss, xp):
    with pytest.raises(SignatureError, match="dimensions"):
        loss.terms(xp, xp.zeros((3, 1)), xp.zeros((3,)))


def test_positive_weights_must_fit_the_last_axis():
    loss = BCEWithLogits((1.0, 2.0))
    assert loss.targets(ArraySpec("logits", "float32", ("batch", 2)))[0].shape == ("batch", 2)
    for shape in ((), ("batch", 1), (2, 3), ("batch", "labels")):
        with pytest.raises(SignatureError, match="2 positive weights"):
            loss.targets(ArraySpec("logits", "float32", shape))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Huber(0.0), "delta"),
        (lambda: Huber(float("inf")), "delta"),
        (lambda: BCEWithLogits(-1.0), "pos_weight"),
        (lambda: BCEWithLogits(()), "pos_weight"),
        (lambda: BCEWithLogits("heavy"), "pos_weight"),  # type: ignore[arg-type]  # the mistake under test
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()


@given(shape=shapes, seed=seeds, scale=scales, reduction=reductions, beta=st.floats(1e-3, 100))
def test_smooth_l1_equals_torch(assert_equals_torch, shape, seed, scale, reduction, beta):
    prediction, target = normal(seed, shape, scale), normal(seed + 1, shape, scale)
    reference = partial(functional.smooth_l1_loss, reduction=reduction, beta=beta)
    assert_equals_torch(SmoothL1(beta, reduction=reduction), reference, prediction, target)


@given(shape=shapes, seed=seeds, scale=scales)
def test_log_cosh_is_what_its_name_says(assert_equals_torch, shape, seed, scale):
    # cosh overflows at 710, far beyond what is drawn.
    prediction, target = normal(seed, shape, scale), normal(seed + 1, shape, scale)
    assert_equals_torch(LogCosh(), lambda x, y: torch.log(torch.cosh(x - y)).mean(), prediction, target, rtol=1e-9)


def test_log_cosh_far_away_is_a_line(xp):
    total, _ = LogCosh().terms(xp, xp.asarray([1e30], dtype=xp.float32), xp.asarray([0.0], dtype=xp.float32))
    np.testing.assert_allclose(float(total), 1e30, rtol=1e-6)


@given(shape=shapes, seed=seeds, q=st.sampled_from([0.1, 0.5, 0.9]))
def test_quantile_is_the_two_sides(assert_equals_torch, shape, seed, q):
    def reference(prediction, target):
        return torch.where(target > prediction, q * (target - prediction), (1 - q) * (prediction - target)).mean()

    assert_equals_torch(Quantile(q), reference, normal(seed, shape, 1.0), normal(seed + 1, shape, 1.0))


def test_several_quantiles_equal_scikit_learn(xp):
    levels, target = (0.1, 0.5, 0.95), normal(2, (9,), 1.0)
    predictions = normal(1, (9, 3), 1.0)
    total, weight = Quantile(levels).terms(xp, xp.asarray(predictions), xp.asarray(target))
    expected = [mean_pinball_loss(target, predictions[:, place], alpha=q) for place, q in enumerate(levels)]
    np.testing.assert_allclose(float(total / weight), np.mean(expected), rtol=1e-12)


def test_minimum_of_quantile_is_the_quantile(xp):
    values, grid = np.random.default_rng(0).exponential(size=1001), np.linspace(0, 5, 501)
    losses = [float(Quantile(0.9).terms(xp, xp.asarray(np.full(1001, x)), xp.asarray(values))[0]) for x in grid]
    np.testing.assert_allclose(grid[np.argmin(losses)], np.quantile(values, 0.9), atol=0.01)


def test_quantiles_without_their_axis_are_refused():
    with pytest.raises(SignatureError, match="3 quantiles"):
        Quantile((0.1, 0.5, 0.9)).targets(ArraySpec("y", "float32", ("batch", 2)))
    for q in (0.0, 1.0, (0.5, 1.5)):
        with pytest.raises(ConfigurationError, match="q must be between 0 and 1"):
            Quantile(q)
