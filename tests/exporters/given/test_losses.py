"""Losses of PyTorch, taken over with all their settings: values and gradients are PyTorch's own."""

from __future__ import annotations

import functools
from typing import Any

import array_api_compat.torch as namespace
import pytest
import torch
from torch import nn
from torch.nn import functional

from edgeopt.errors import ConfigurationError
from edgeopt.losses import CTC, ArraySpec, CrossEntropy, Loss
from edgeopt_exporters.given import as_loss

LABELS = torch.tensor([0, 2, 1, 2, 0])
WEIGHTS = torch.tensor([0.5, 2.0, 1.0])
NUMBERS = torch.linspace(-2.0, 2.5, 15, dtype=torch.float64).reshape(5, 3).flip(0)

TAKEN: list[Any] = [
    nn.CrossEntropyLoss(),
    nn.CrossEntropyLoss(weight=WEIGHTS, ignore_index=2, label_smoothing=0.1),
    nn.CrossEntropyLoss(reduction="sum"),
    nn.MSELoss(),
    nn.MSELoss(reduction="sum"),
    nn.L1Loss(),
    nn.HuberLoss(delta=0.5),
    nn.HuberLoss(reduction="sum"),
    nn.SmoothL1Loss(),
    nn.SmoothL1Loss(beta=0.0),
    nn.BCEWithLogitsLoss(),
    nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0)),
    nn.BCEWithLogitsLoss(pos_weight=torch.tensor([3.0])),
    nn.BCEWithLogitsLoss(pos_weight=WEIGHTS, reduction="sum"),
    functional.cross_entropy,
    functools.partial(functional.cross_entropy, label_smoothing=0.2, ignore_index=1),
    functional.mse_loss,
    functional.l1_loss,
    functools.partial(functional.huber_loss, delta=2.0),
    functional.smooth_l1_loss,
    functional.binary_cross_entropy_with_logits,
    nn.SmoothL1Loss(beta=0.5),
    nn.NLLLoss(),
    nn.NLLLoss(weight=WEIGHTS, ignore_index=1, reduction="sum"),
    nn.MultiMarginLoss(),
    nn.MultiMarginLoss(p=2, margin=0.5, weight=WEIGHTS),
    nn.PoissonNLLLoss(),
    nn.PoissonNLLLoss(full=True, reduction="sum"),
    nn.KLDivLoss(),
    nn.KLDivLoss(reduction="batchmean", log_target=True),
    functional.nll_loss,
    functional.kl_div,
    functools.partial(functional.kl_div, reduction="batchmean"),
    functional.multi_margin_loss,
    functional.poisson_nll_loss,
]


def value(loss: Loss, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    total, weight = loss.terms(namespace, prediction, target)
    return total / weight


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning")  # what torch says of KLDivLoss
@pytest.mark.parametrize("theirs", TAKEN)
def test_what_is_taken_over_computes_the_same(theirs: Any) -> None:
    (spec,) = as_loss(theirs).targets(ArraySpec("prediction", "float64", (5, 3)))
    labels = spec.dtype == "int64"
    target = LABELS if labels else (NUMBERS.roll(1, 0) > 0).double()
    theirs = theirs.double() if isinstance(theirs, nn.Module) else theirs
    expected_at, actual_at = NUMBERS.clone().requires_grad_(), NUMBERS.clone().requires_grad_()
    expected, actual = theirs(expected_at, target), value(as_loss(theirs), actual_at, target)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=0.0)
    expected.backward()
    actual.backward()
    torch.testing.assert_close(actual_at.grad, expected_at.grad, rtol=1e-12, atol=1e-14)


# Each with the rest of what PyTorch's takes behind the first output: further outputs, then targets.
SEVERAL: list[Any] = [
    (nn.GaussianNLLLoss(), "variance"),
    (nn.GaussianNLLLoss(full=True, eps=0.5, reduction="sum"), "variance"),
    (functional.gaussian_nll_loss, "variance"),
    (nn.CosineEmbeddingLoss(margin=0.1), "signs"),
    (functional.cosine_embedding_loss, "signs"),
    (nn.MarginRankingLoss(margin=0.3, reduction="sum"), "sign of each"),
    (functional.margin_ranking_loss, "sign of each"),
    (nn.TripletMarginLoss(margin=2.0, p=1.0, eps=1e-3), "triplet"),
    (nn.TripletMarginLoss(margin=2.0, swap=True), "triplet"),
    (functional.triplet_margin_loss, "triplet"),
]


@pytest.mark.parametrize(("theirs", "kind"), SEVERAL)
def test_losses_of_several_outputs_are_taken_over(theirs: Any, kind: str) -> None:
    one, two, three = NUMBERS, NUMBERS.roll(2, 1).cos() + 1.5, NUMBERS.sin()
    signs = torch.tensor([1.0, -1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    # What is differentiated, what is not, and PyTorch's order of both.
    leaves, others, order = {
        "variance": ([one, two], [three], (0, 2, 1)),
        "signs": ([one, two], [signs], (0, 1, 2)),
        "sign of each": ([one, two], [three.sign()], (0, 1, 2)),
        "triplet": ([one, two, three], [], (0, 1, 2)),
    }[kind]
    expected_at, actual_at = ([leaf.clone().requires_grad_() for leaf in leaves] for _ in range(2))
    given = [*expected_at, *others]
    expected = theirs(*(given[place] for place in order))
    total, weight = as_loss(theirs).terms(namespace, *actual_at, *others)
    torch.testing.assert_close(total / weight, expected, rtol=1e-10, atol=0.0)
    expected.backward()
    (total / weight).backward()
    for actual, wanted in zip(actual_at, expected_at, strict=True):
        torch.testing.assert_close(actual.grad, wanted.grad, rtol=1e-9, atol=1e-12)


def test_ctc_keeps_its_settings_and_the_order_of_torch() -> None:
    assert as_loss(nn.CTCLoss(blank=3, zero_infinity=True)) == CTC(3, zero_infinity=True, time_first=True)


def test_a_class_stands_for_its_defaults() -> None:
    assert as_loss(nn.CrossEntropyLoss) == as_loss(CrossEntropy) == as_loss("cross_entropy") == CrossEntropy()


class Mine(nn.MSELoss):
    """Has the name and the settings of another, and may compute anything."""


class Keras:
    """Stands for a loss of Keras, which is not installed where this runs."""

    __module__ = "keras.src.losses.losses"


class SparseCategoricalCrossentropy(Keras):
    __module__ = "keras.src.losses.losses"


class MeanSquaredError(Keras):
    __module__ = "keras.src.losses.losses"


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (nn.CrossEntropyLoss(reduction="none"), "torch.nn.CrossEntropyLoss: reduction='none' leaves no number"),
        (nn.BCEWithLogitsLoss(weight=torch.ones(3)), "weight=.* weighs elements of the batch"),
        (nn.BCEWithLogitsLoss(pos_weight=torch.ones(2, 3)), r"pos_weight has the shape \(2, 3\)"),
        (functools.partial(functional.mse_loss, reduce=False), "`reduce=False` is out of date"),
        (functools.partial(functional.huber_loss, torch.ones(1)), "by name, not by place"),
        (nn.BCELoss(), "torch.nn.BCELoss: .*give 'bce_with_logits'"),
        (
            nn.SoftMarginLoss,
            "torch.nn.SoftMarginLoss: There is no loss 'SoftMarginLoss'. Choose from bce",
        ),
        (functional.soft_margin_loss, "torch.nn.functional.soft_margin_loss: There is no loss"),
        (Mine(), "a class of yours derived from edgeopt.losses.Loss"),
        (lambda prediction, target: prediction - target, "a class of yours derived from edgeopt.losses.Loss"),
        (SparseCategoricalCrossentropy(), "A loss of Keras is not taken over. .*; give 'cross_entropy'"),
        (MeanSquaredError(), r"not taken over; its equal is edgeopt.losses.MSE\(\)"),
        (3, r"must be one of edgeopt's, edgeopt.losses.CrossEntropy\(\), or its name; got 3"),
    ],
)
def test_what_has_no_equal_is_refused_in_a_line(loss: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        as_loss(loss)
    assert "\n" not in str(caught.value)
