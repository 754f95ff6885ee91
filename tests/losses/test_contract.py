"""What every loss keeps, over the registry. A new loss adds one row to CASES."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import NamedTuple

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.losses import (
    CTC,
    LOSSES,
    NLL,
    ArraySpec,
    BCEWithLogits,
    BinaryFocal,
    CosineEmbedding,
    CrossEntropy,
    Dice,
    Distillation,
    Focal,
    GaussianNLL,
    Hinge,
    Huber,
    InfoNCE,
    KLDivergence,
    Loss,
    MarginRanking,
    MultiMargin,
    PoissonNLL,
    Quantile,
    SmoothL1,
    Triplet,
    Tversky,
)


class Case(NamedTuple):
    loss: Loss
    labels: str  # what the targets are: "class", "sequence", "probability", "real", "sign" or "none"
    axes: tuple[int, ...] = (3,)  # of the prediction, after the first
    outputs: int = 1
    pairs: bool = False  # whether samples are compared with each other


CASES = {
    "bce_with_logits": Case(BCEWithLogits(pos_weight=(0.5, 2.0, 1.0)), "probability"),
    "cosine_embedding": Case(CosineEmbedding(margin=0.2), "sign", outputs=2),
    "cross_entropy": Case(CrossEntropy(weight=(0.5, 2.0, 1.0), label_smoothing=0.1), "class"),
    "binary_focal": Case(BinaryFocal(), "probability"),
    "ctc": Case(CTC(zero_infinity=True), "sequence", (6, 3)),
    "dice": Case(Dice(binary=True), "probability", (3, 4)),
    "distillation": Case(Distillation(3.0), "none", (3, 4), outputs=2),
    "focal": Case(Focal(weight=(0.5, 2.0, 1.0)), "class"),
    "gaussian_nll": Case(GaussianNLL(log_variance=True, full=True), "real", outputs=2),
    "hinge": Case(Hinge(squared=True), "real"),
    "huber": Case(Huber(0.7), "real"),
    "info_nce": Case(InfoNCE(0.5), "none", outputs=2, pairs=True),
    "kl_divergence": Case(KLDivergence(), "probability"),
    "l1": Case(LOSSES["l1"](), "real"),
    "log_cosh": Case(LOSSES["log_cosh"](), "real"),
    "margin_ranking": Case(MarginRanking(0.3), "real", outputs=2),
    "mse": Case(LOSSES["mse"](), "real"),
    "multi_margin": Case(MultiMargin(weight=(0.5, 2.0, 1.0), p=2), "class"),
    "nll": Case(NLL(weight=(0.5, 2.0, 1.0)), "class"),
    "poisson_nll": Case(PoissonNLL(full=True), "real"),
    "quantile": Case(Quantile(0.8), "real"),
    "smooth_l1": Case(SmoothL1(0.4), "real"),
    "triplet": Case(Triplet(swap=True), "none", outputs=3),
    "tversky": Case(Tversky(), "class", (3, 4)),
}


@pytest.fixture(params=list(CASES.values()), ids=list(CASES))
def case(request):
    return request.param


def draws(case, rows, dtype=np.float64):
    rng = np.random.default_rng(11)
    shape = (rows, *case.axes)
    prediction, *others = ((3 * rng.normal(size=shape)).astype(dtype) for _ in range(case.outputs))
    if case.labels == "none":
        return prediction, *others
    if case.labels == "sign":
        return prediction, *others, np.where(rng.random(rows) < 0.5, -1.0, 1.0).astype(dtype)
    if case.labels == "class":
        positions = (rows, *case.axes[1:])
        return prediction, np.where(rng.random(positions) < 0.2, -100, rng.integers(0, 3, size=positions))
    if case.labels == "sequence":
        return prediction, rng.integers(1, 3, (rows, 2)), rng.integers(1, 7, rows), rng.integers(0, 3, rows)
    target = rng.random(shape) if case.labels == "probability" else rng.normal(size=shape)
    return prediction, *others, target.astype(dtype)


def test_every_registered_loss_has_a_row():
    assert {name: type(case.loss) for name, case in CASES.items()} == LOSSES


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_terms_are_scalars_of_the_prediction_dtype(case, xp, dtype, reduction):
    prediction, *targets = (xp.asarray(array) for array in draws(case, 6, dtype))
    total, weight = replace(case.loss, reduction=reduction).terms(xp, prediction, *targets)
    assert total.shape == weight.shape == ()
    assert total.dtype == weight.dtype == prediction.dtype


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_as_onnx_it_computes_the_same(case, run_as_onnx, dtype, reduction):
    def program(xp, arrays):
        total, weight = replace(case.loss, reduction=reduction).terms(xp, *arrays.values())
        return {"total": total, "weight": weight}

    inputs = {str(position): array for position, array in enumerate(draws(case, 6, dtype))}
    expected = program(numpy_namespace, inputs)
    for name, result in run_as_onnx(program, inputs, batched=inputs).items():
        assert result.dtype == dtype
        np.testing.assert_allclose(result, expected[name], rtol=20 * np.finfo(dtype).eps, err_msg=name)


def test_sum_has_the_same_sum_and_a_weight_of_one(case, xp):
    arrays = [xp.asarray(array) for array in draws(case, 6)]
    total, _ = case.loss.terms(xp, *arrays)
    assert replace(case.loss, reduction="sum").terms(xp, *arrays) == (total, 1.0)


def test_microbatches_add_up_to_the_batch(case, xp):
    if case.pairs:
        return  # told apart from the others of a microbatch, as its documentation says
    arrays = draws(case, 12)
    whole = case.loss.terms(xp, *map(xp.asarray, arrays))
    parts = [
        case.loss.terms(xp, *(xp.asarray(array[rows]) for array in arrays))
        for rows in (slice(0, 1), slice(1, 5), slice(5, 12))
    ]
    np.testing.assert_allclose([float(sum(terms)) for terms in zip(*parts, strict=True)], [float(t) for t in whole])


def test_targets_keep_unknown_dimensions_and_take_the_given_name(case):
    shape = ("batch", "time", 3) if case.labels == "sequence" else ("batch", 3, "height", 3)
    prediction = ArraySpec("logits", "float32", shape)
    if case.labels in ("sign", "none"):
        prediction = ArraySpec("embedding", "float32", ("batch", 3))
    found = replace(case.loss, target="answer").targets(prediction, *[prediction] * (case.outputs - 1))
    if case.labels == "none":
        assert found == ()
        return
    spec, *_ = found
    if case.labels == "sign":
        assert spec == ArraySpec("answer", "float32", ("batch",))
    elif case.labels == "sequence":
        assert spec == ArraySpec("answer", "int64", ("batch", "labels"))
    elif case.labels == "class":
        assert spec == ArraySpec("answer", "int64", ("batch", "height", 3), classes=3, ignored=-100)
    else:
        assert spec == ArraySpec("answer", "float32", ("batch", 3, "height", 3))


def test_is_a_value(case):
    assert replace(case.loss) == case.loss
    assert hash(replace(case.loss)) == hash(case.loss)
    assert pickle.loads(pickle.dumps(case.loss)) == case.loss


@pytest.mark.parametrize("settings", [{"reduction": "none"}, {"target": ""}], ids=str)
def test_impossible_settings_are_refused(case, settings):
    (name,) = settings
    with pytest.raises(ConfigurationError, match=name):
        type(case.loss)(**settings)
