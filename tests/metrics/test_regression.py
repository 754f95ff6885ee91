"""Metrics of numbers, over random cuts into batches, beside scikit-learn and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn

from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.losses import ArraySpec
from edgeopt.metrics import MAE, MSE, R2, RMSE, CosineSimilarity

CUTS = st.lists(st.integers(0, 99), max_size=6).map(tuple)
SEED = st.integers(0, 2**32 - 1)
ERRORS = {
    MAE: sklearn.mean_absolute_error,
    MSE: sklearn.mean_squared_error,
    RMSE: lambda y, x: sklearn.mean_squared_error(y, x) ** 0.5,
}


def pair(seed, columns):
    rng = np.random.default_rng(seed)
    target = rng.normal(size=(19, *columns)) * np.exp(rng.normal(size=columns)) + 3 * rng.normal(size=columns)
    return target + 0.5 * rng.normal(size=target.shape), target


@given(seed=SEED, cuts=CUTS, kind=st.sampled_from(list(ERRORS)), columns=st.sampled_from([(), (3,), (2, 2)]))
def test_errors_are_those_of_scikit_learn(measured, seed, cuts, kind, columns):
    prediction, target = pair(seed, columns)
    expected = ERRORS[kind](target.reshape(-1), prediction.reshape(-1))
    np.testing.assert_allclose(measured(kind(), prediction, target, cuts=cuts), expected, rtol=1e-12)


@given(seed=SEED, cuts=CUTS, columns=st.sampled_from([(), (1,), (3,)]))
def test_r2_is_that_of_scikit_learn(measured, seed, cuts, columns):
    prediction, target = pair(seed, columns)
    np.testing.assert_allclose(
        measured(R2(), prediction, target, cuts=cuts), sklearn.r2_score(target, prediction), rtol=1e-11
    )
    each = np.atleast_1d(sklearn.r2_score(target, prediction, multioutput="raw_values"))
    np.testing.assert_allclose(measured(R2("none"), prediction, target, cuts=cuts), each, rtol=1e-11)


@pytest.mark.parametrize("mean", [1e2, 1e4, -1e5])
def test_r2_of_float32_targets_far_from_zero(run_as_onnx, measured, mean):
    """In float32 the difference of the sums would be noise from a mean of 1000 deviations on."""
    rng = np.random.default_rng(0)
    target = (mean + rng.normal(size=(4000, 1))).astype(np.float32)
    prediction = (target + 0.3 * rng.normal(size=target.shape)).astype(np.float32)
    expected = sklearn.r2_score(target.astype(np.float64), prediction.astype(np.float64))

    def program(xp, arrays):
        return {"r2": R2().value(xp, R2().sums(xp, *arrays.values()))}

    inputs = {"prediction": prediction, "target": target}
    assert run_as_onnx(program, inputs, batched=inputs)["r2"] == pytest.approx(expected, rel=1e-5)
    assert measured(R2(), prediction, target, cuts=(7, 31)) == pytest.approx(expected, rel=1e-5)


def test_r2_of_a_constant_target(measured):
    with np.errstate(all="ignore"):
        assert measured(R2(), np.asarray([2.0, 2.5]), np.asarray([2.0, 2.0])) == -np.inf
        assert np.isnan(measured(R2(), np.full(4, 2.0), np.full(4, 2.0)))


def test_r2_of_no_fixed_length_is_one_number(run_as_onnx):
    from edgeopt import tracing

    graph = tracing.new_graph("any")
    tracer = tracing.Tracer(graph)
    array = tracer.input("x", np.dtype("float32"), ("batch", "time"))
    assert {value.shape for value in R2().sums(tracing, array, array).values()} == {(1,)}


@given(seed=SEED, cuts=CUTS, axis=st.sampled_from([-1, 1]))
def test_cosine_similarity_is_that_of_torch(measured, seed, cuts, axis):
    prediction, target = pair(seed, (4, 3))
    target[0, :, 0] = 0.0
    expected = torch.nn.functional.cosine_similarity(torch.tensor(prediction), torch.tensor(target), dim=axis).mean()
    found = measured(CosineSimilarity(axis), prediction, target, cuts=cuts)
    np.testing.assert_allclose(found, float(expected), rtol=1e-11)


@pytest.mark.parametrize("metric", [MAE(), MSE(), RMSE()], ids=repr)
def test_half_precision_does_not_overflow(metric, measured):
    prediction = np.full((2, 5000), 300.0, np.float16)
    expected = {"mae": 300.0, "mse": 90000.0, "rmse": 300.0}[metric.name]
    assert measured(metric, prediction, np.zeros_like(prediction), cuts=(1,)) == pytest.approx(expected, rel=1e-6)


def test_what_does_not_fit_is_refused():
    prediction, labels = ArraySpec("x", "float32", ("n", 3)), ArraySpec("y", "int64", ("n",))
    for metric in (MAE(), R2(), CosineSimilarity()):
        with pytest.raises(SignatureError, match="compares numbers"):
            metric.check(None, prediction, [labels])
    with pytest.raises(SignatureError, match="axis=2"):
        CosineSimilarity(2).check(None, prediction, [prediction])
    with pytest.raises(ConfigurationError, match="average"):
        R2("variance")  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(ConfigurationError, match="eps"):
        CosineSimilarity(eps=0.0)
