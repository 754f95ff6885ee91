from __future__ import annotations

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgeopt.errors import ConfigurationError
from edgeopt.transforms import TRANSFORMS, ClipByGlobalNorm, ClipByValue

EXAMPLES = {"clip_by_global_norm": ClipByGlobalNorm(1.0), "clip_by_value": ClipByValue(0.5)}
SHAPES = [(), (5,), (3, 4), (2, 3, 2, 2)]


def apply(transform, xp, grads, **overrides):
    hyper = {**transform.hyperparameters(), **overrides}
    scalars = {name: xp.asarray(value, dtype=xp.float64) for name, value in hyper.items()}
    arrays = [xp.asarray(grad) for grad in grads]
    clipped, metrics = transform(xp, arrays, arrays, scalars, xp.asarray(1, dtype=xp.int64))
    return [np.asarray(grad) for grad in clipped], {name: float(value) for name, value in metrics.items()}


def with_torch(clip, grads, bound):
    params = [torch.nn.Parameter(torch.zeros(grad.shape, dtype=torch.from_numpy(grad).dtype)) for grad in grads]
    for param, grad in zip(params, grads, strict=True):
        param.grad = torch.tensor(grad)
    norm = clip(params, bound)
    return [np.asarray(param.grad) for param in params], norm


def draws(seed=0, scale=1.0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return [np.asarray(scale * rng.normal(size=shape), dtype=dtype) for shape in SHAPES]


def assert_all_close(ours, theirs, rtol):
    for mine, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=rtol)


def test_every_registered_transform_has_an_example():
    assert {name: type(example) for name, example in EXAMPLES.items()} == TRANSFORMS


@pytest.mark.parametrize("transform", EXAMPLES.values(), ids=EXAMPLES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_order_shapes_and_dtypes_are_kept(transform, xp, dtype):
    grads = draws(dtype=dtype)
    clipped, _ = apply(transform, xp, grads)
    assert [(g.shape, g.dtype) for g in clipped] == [(g.shape, g.dtype) for g in grads]


@pytest.mark.parametrize("transform", EXAMPLES.values(), ids=EXAMPLES)
def test_bounds_can_be_changed_without_a_new_instance(transform, xp):
    (name,) = transform.hyperparameters()
    changed, _ = apply(transform, xp, draws(), **{name: 0.125})
    rebuilt, _ = apply(type(transform)(0.125), xp, draws())
    assert_all_close(changed, rebuilt, rtol=0)


@pytest.mark.parametrize("transform", EXAMPLES.values(), ids=EXAMPLES)
def test_no_gradients_give_no_gradients(transform, xp):
    assert apply(transform, xp, [])[0] == []


@pytest.mark.parametrize("transform", EXAMPLES.values(), ids=EXAMPLES)
def test_as_onnx_it_computes_the_same(transform, run_as_onnx):
    grads = {f"grad{i}": grad for i, grad in enumerate(draws(dtype=np.float32))}

    def program(xp, arrays):
        of_model = [arrays[name] for name in grads]
        clipped, metrics = transform(xp, of_model, of_model, arrays, arrays["step"])
        return {**{f"next.{name}": grad for name, grad in zip(grads, clipped, strict=True)}, **metrics}

    inputs = {**grads, **transform.hyperparameters(), "step": np.int64(1)}
    expected = program(numpy_namespace, {name: np.asarray(value) for name, value in inputs.items()})
    results = run_as_onnx(program, inputs)
    assert set(results) == set(expected)
    for name, result in results.items():
        assert result.dtype == expected[name].dtype
        np.testing.assert_allclose(result, expected[name], rtol=1e-6, err_msg=name)


@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(1e-6, 1e6), bound=st.floats(0, 1e3))
def test_global_norm_equals_torch(xp, seed, scale, bound):
    grads = draws(seed, scale)
    clipped, metrics = apply(ClipByGlobalNorm(bound), xp, grads)
    expected, norm = with_torch(torch.nn.utils.clip_grad_norm_, grads, bound)
    assert_all_close(clipped, expected, rtol=1e-12)
    np.testing.assert_allclose(metrics["grad_norm"], float(norm), rtol=1e-12)


@pytest.mark.parametrize("bound", [0.5, 1e3])
def test_global_norm_stays_with_torch_in_float32(xp, bound):
    grads = draws(dtype=np.float32)
    clipped, metrics = apply(ClipByGlobalNorm(bound), xp, grads)
    expected, norm = with_torch(torch.nn.utils.clip_grad_norm_, grads, bound)
    assert_all_close(clipped, expected, rtol=1e-6)
    np.testing.assert_allclose(metrics["grad_norm"], float(norm), rtol=1e-6)


def test_zero_gradients_stay_zero(xp):
    clipped, metrics = apply(ClipByGlobalNorm(1.0), xp, [np.zeros(3, np.float32)])
    np.testing.assert_array_equal(clipped[0], np.zeros(3))
    assert metrics == {"grad_norm": 0.0}


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_norms_that_are_not_finite_behave_as_in_torch(xp, bad):
    grads = [np.array([1.0, bad, -2.0]), np.array([3.0])]
    with np.errstate(invalid="ignore"):
        clipped, metrics = apply(ClipByGlobalNorm(1.0), xp, grads)
    expected, norm = with_torch(torch.nn.utils.clip_grad_norm_, grads, 1.0)
    assert_all_close(clipped, expected, rtol=0)
    np.testing.assert_equal(metrics["grad_norm"], float(norm))


def test_finite_gradients_with_an_overflowing_norm_vanish_as_in_torch(xp):
    grads = [np.array([1e30, 1.0], np.float32)]
    with np.errstate(over="ignore"):
        clipped, metrics = apply(ClipByGlobalNorm(1.0), xp, grads)
    expected, _ = with_torch(torch.nn.utils.clip_grad_norm_, grads, 1.0)
    assert_all_close(clipped, expected, rtol=0)
    assert metrics["grad_norm"] == np.inf


@given(seed=st.integers(0, 2**32 - 1), bound=st.floats(0, 3))
def test_clip_by_value_equals_torch(xp, seed, bound):
    grads = draws(seed)
    clipped, metrics = apply(ClipByValue(bound), xp, grads)
    expected, _ = with_torch(torch.nn.utils.clip_grad_value_, grads, bound)
    assert_all_close(clipped, expected, rtol=0)
    assert metrics == {}


def test_clip_by_value_keeps_nan_and_bounds_infinities(xp):
    clipped, _ = apply(ClipByValue(2.0), xp, [np.array([np.nan, np.inf, -np.inf])])
    np.testing.assert_array_equal(clipped[0], [np.nan, 2.0, -2.0])


@pytest.mark.parametrize("cls", [ClipByGlobalNorm, ClipByValue])
@pytest.mark.parametrize("bound", [-1.0, float("nan"), float("inf"), None])
def test_impossible_bounds_are_refused(cls, bound):
    with pytest.raises(ConfigurationError, match=r"max_norm|clip_value"):
        cls(bound)
