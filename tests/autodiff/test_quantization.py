from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
import torch

import edgeopt
import edgeopt_runtime
from edgeopt import tracing as xp
from edgeopt.autodiff import backward
from edgeopt.tracing import Array, Tracer, new_graph, op

X = np.random.default_rng(4).uniform(-3.0, 3.0, (2, 3, 4)).astype(np.float32)
SCALE = np.asarray(0.02, np.float32)
SCALES = np.asarray([0.01, 0.02, 0.05], np.float32)
COTANGENT = np.random.default_rng(0).standard_normal(X.shape).astype(np.float32)


def there_and_back(zero_point: Any, axis: int = 1, between: Callable[[Array], Array] = lambda q: q) -> Any:
    def function(x: Array, scale: Array) -> Array:
        quantized = between(op.QuantizeLinear(x, scale, zero_point, axis=axis))
        return op.DequantizeLinear(quantized, scale, zero_point, axis=axis)

    return function


@pytest.mark.parametrize("zero_point", [np.uint8(128), np.uint8(0), np.int8(0), np.int8(7)], ids=repr)
def test_a_pair_has_the_gradient_of_a_learnable_fake_quantization(
    zero_point: Any, make_step: Callable[..., Any]
) -> None:
    info = np.iinfo(zero_point.dtype)
    x, scale = torch.tensor(X, requires_grad=True), torch.tensor([0.02], requires_grad=True)
    offset = torch.tensor([float(zero_point)])
    expected = torch._fake_quantize_learnable_per_tensor_affine(x, scale, offset, info.min, info.max, 1.0)
    expected.backward(torch.tensor(COTANGENT))
    assert x.grad is not None
    assert scale.grad is not None
    step = make_step(there_and_back(zero_point), [X.shape, ()])
    output, to_x, to_scale = step.run([X, SCALE], COTANGENT)
    np.testing.assert_allclose(output, expected.detach(), atol=1e-6)
    np.testing.assert_allclose(to_x, x.grad, rtol=1e-5)
    np.testing.assert_allclose(to_scale, scale.grad[0], rtol=1e-4)


def test_beyond_the_range_the_scale_stretches_what_is_left_of_it(make_step: Callable[..., Any]) -> None:
    """torch truncates -7 + 0.5 to -6 here."""
    step = make_step(there_and_back(np.int8(-7)), [(2,), ()])
    output, to_x, to_scale = step.run([np.asarray([9, -9], np.float32), SCALE], np.asarray([1, 10], np.float32))
    np.testing.assert_allclose(output, [134 * 0.02, -121 * 0.02], rtol=1e-6)
    np.testing.assert_array_equal(to_x, [0, 0])
    np.testing.assert_allclose(to_scale, 134 - 10 * 121)


@pytest.mark.parametrize("axis", [1, -2])
def test_channels_may_have_their_own_scales(axis: int, make_step: Callable[..., Any]) -> None:
    zero_point = np.asarray([100, 128, 0], np.uint8)
    x, scale = torch.tensor(X, requires_grad=True), torch.tensor(SCALES, requires_grad=True)
    offsets = torch.tensor(zero_point.astype(np.float32))
    expected = torch._fake_quantize_learnable_per_channel_affine(x, scale, offsets, 1, 0, 255, 1.0)
    expected.backward(torch.tensor(COTANGENT))
    assert x.grad is not None
    assert scale.grad is not None
    output, to_x, to_scale = make_step(there_and_back(zero_point, axis), [X.shape, (3,)]).run([X, SCALES], COTANGENT)
    np.testing.assert_allclose(output, expected.detach(), atol=1e-6)
    np.testing.assert_allclose(to_x, x.grad, rtol=1e-5)
    np.testing.assert_allclose(to_scale, scale.grad, rtol=1e-4)


def moved(q: Array) -> Array:
    """What stands between the two in real files, and comes out as it went in."""
    flat = op.Flatten(op.Transpose(q, perm=[1, 0, 2]))
    halves = op.Concat(op.Slice(flat, [0], [4], [1]), op.Slice(flat, [4], [8], [1]), axis=1)
    back = op.Transpose(op.Reshape(halves, [3, 2, 4]), perm=[1, 0, 2])
    return op.Squeeze(op.Unsqueeze(op.Identity(back), [0]), [0])


def test_quantized_tensors_may_be_moved_in_between(make_step: Callable[..., Any]) -> None:
    plain = make_step(there_and_back(np.int8(3)), [X.shape, ()]).run([X, SCALE], COTANGENT)
    there = make_step(there_and_back(np.int8(3), between=moved), [X.shape, ()]).run([X, SCALE], COTANGENT)
    for one, other in zip(plain, there, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_without_a_zero_point_the_integers_are_unsigned(make_step: Callable[..., Any]) -> None:
    step = make_step(lambda x: op.DequantizeLinear(op.QuantizeLinear(x, SCALE), SCALE), [X.shape])
    _, to_x = step.run([X], COTANGENT)
    np.testing.assert_allclose(to_x, np.where(X > -0.01, COTANGENT, 0.0), rtol=1e-5)


def test_small_floats_are_cut_at_their_largest_number(make_step: Callable[..., Any]) -> None:
    import ml_dtypes

    zero = np.zeros((), ml_dtypes.float8_e4m3fn)
    step = make_step(
        lambda x: op.DequantizeLinear(op.QuantizeLinear(x, np.float32(0.005), zero), np.float32(0.005)), [X.shape]
    )
    _, to_x = step.run([X], COTANGENT)
    np.testing.assert_allclose(to_x, np.where(np.abs(X) <= 448 * 0.005, COTANGENT, 0.0), rtol=1e-5)


def test_a_frozen_integer_weight_passes_a_gradient_to_its_scale(make_step: Callable[..., Any]) -> None:
    weight = np.asarray([[1, -2, 3], [4, 5, -6]], np.int8)
    step = make_step(
        lambda x, scale: op.MatMul(x, op.DequantizeLinear(x.tracer.constant(weight), scale, axis=1)), [(4, 2), (3,)]
    )
    x = np.random.default_rng(1).standard_normal((4, 2)).astype(np.float32)
    cotangent = np.random.default_rng(2).standard_normal((4, 3)).astype(np.float32)
    _, to_x, to_scale = step.run([x, SCALES], cotangent)
    np.testing.assert_allclose(to_x, cotangent @ (weight * SCALES).T, rtol=1e-4)
    np.testing.assert_allclose(to_scale, ((x.T @ cotangent) * weight).sum(0), rtol=1e-4)


def test_integers_that_were_cast_still_carry_no_gradient() -> None:
    tracer = Tracer(new_graph("cast"))
    x = tracer.input("x", np.float32, (2, 2))
    y = op.DequantizeLinear(op.Transpose(xp.astype(x, np.int8)), SCALE)
    assert backward(tracer, {y.value: y}, [x.value]) == [None]


QDQ = """
<ir_version: 9, opset_import: ["" : 20]>
layer (float[batch, 4] x) => (float[batch, 3] y)
<float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}, float s = {0.1}, uint8 z = {128}, int8 zw = {0}>
{
    xq = QuantizeLinear(x, s, z)
    xd = DequantizeLinear(xq, s, z)
    wq = QuantizeLinear(w, s, zw)
    wd = DequantizeLinear(wq, s, zw)
    y = MatMul(xd, wd)
}
"""


def test_a_model_in_qdq_form_trains(tmp_path: Path) -> None:
    """Its weight stays a float one, which is rounded at each step."""
    bundle = edgeopt.export(
        onnx.parser.parse_model(QDQ), loss=edgeopt.losses.MSE(), optimizer=edgeopt.optimizers.SGD(lr=0.1)
    )
    bundle.save(tmp_path / "qdq.edgeopt")
    session = edgeopt_runtime.TrainingSession.load(tmp_path / "qdq.edgeopt")
    random = np.random.default_rng(0)
    x = random.uniform(-5, 5, (32, 4)).astype(np.float32)
    batch = {"x": x, "target": (x @ random.uniform(-3, 3, (4, 3))).astype(np.float32)}
    losses = [float(session.step(batch)["loss"]) for _ in range(12)]
    assert losses[-1] < 1e-3 * losses[0]
