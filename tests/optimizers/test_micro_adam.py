from __future__ import annotations

from functools import partial
from typing import Any

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import Adam, MicroAdam, initial_state


def micro_adam(theta, grads, *, lr, density, window, block, bucket, b1=0.9, b2=0.999, eps=1e-8, decay=0.0):
    shape, size = theta.shape, theta.size
    theta = theta.reshape(-1)
    blocks = -(-size // block)
    error, history = np.zeros((blocks, block)), list[Any]()
    for t, g in enumerate(grads, 1):
        mass = error.copy()
        mass.reshape(-1)[:size] += g.reshape(-1)
        chosen = np.argsort(-np.abs(mass), axis=1, kind="stable")[:, : int(np.ceil(density * block))]
        sparse = np.zeros_like(mass)
        np.put_along_axis(sparse, chosen, np.take_along_axis(mass, chosen, 1), 1)
        rest = (mass - sparse).reshape(-1, bucket)
        low, high = rest.min(1, keepdims=True), rest.max(1, keepdims=True)
        unit = (high - low) / 15
        with np.errstate(invalid="ignore"):
            level = np.where(unit > 0, np.floor((rest - low) / unit + 0.5), 0.0)
        error = (low + level * unit).reshape(blocks, block)
        history = [sparse, *history][:window]
        m = (1 - b1) * sum(b1**age * s for age, s in enumerate(history)) / (1 - b1**t)
        v = (1 - b2) * sum(b2**age * s**2 for age, s in enumerate(history)) / (1 - b2**t)
        theta = theta * (1 - lr * decay) - lr * (m / (np.sqrt(v) + eps)).reshape(-1)[:size]
    return theta.reshape(shape)


SMALL: dict[str, Any] = {"density": 0.3, "window": 4, "block": 8, "bucket": 4}
CASES = {
    "one block": (
        MicroAdam(0.01, density=0.1, bucket=8),
        partial(micro_adam, density=0.1, window=10, block=24, bucket=8),
    ),
    "blocks": (MicroAdam(0.01, **SMALL), partial(micro_adam, **SMALL)),
    "other": (
        MicroAdam(0.01, beta1=0.6, beta2=0.9, eps=1e-3, weight_decay=0.1, **SMALL),
        partial(micro_adam, b1=0.6, b2=0.9, eps=1e-3, decay=0.1, **SMALL),
    ),
}


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_follows_the_paper(rule, reference, train, xp, draws):
    # Steps are discontinuous where the largest element changes, so this is for float64.
    start, grads = draws(25, smallest=0.1)
    param, _ = train(rule, xp, start, lambda _, i: grads[i], 25)
    np.testing.assert_allclose(param, reference(start, grads, lr=0.01), rtol=1e-12, atol=1e-12)


def test_onnx_runtime_follows_it_too(train_onnx, draws):
    start, grads = draws(25, smallest=0.1)
    param = train_onnx(MicroAdam(0.01, **SMALL), start, grads)
    np.testing.assert_allclose(param, micro_adam(start, grads, lr=0.01, **SMALL), rtol=1e-12, atol=1e-12)


def test_a_block_may_have_as_many_elements_as_its_indices_can_name(train, train_onnx):
    start, grads = np.zeros(65536 + 5, np.float32), np.zeros((3, 65536 + 5), np.float32)
    grads[0, 0], grads[0, 65535], grads[1, 65536], grads[2, 40000] = 1.0, -1.0, 2.0, -3.0
    rule = MicroAdam(0.01, density=1e-5)
    expected = micro_adam(start, grads.astype(np.float64), lr=0.01, density=1e-5, window=10, block=65536, bucket=64)
    assert np.count_nonzero(expected) == 4
    for param in (train(rule, numpy_namespace, start, lambda _, i: grads[i], 3)[0], train_onnx(rule, start, grads)):
        np.testing.assert_allclose(param, expected, rtol=1e-6, atol=1e-9)


def test_the_state_takes_little_memory():
    param = np.zeros((512, 256), np.float32)
    state = initial_state(MicroAdam(), param)
    assert {slot: value.dtype.name for slot, value in state.items()} == {
        "indices": "int16",
        "values": "float32",
        "error": "uint8",
        "error_min": "float32",
        "error_max": "float32",
    }
    assert sum(value.nbytes for value in state.values()) / param.size < 1.23
    assert sum(value.nbytes for value in initial_state(Adam(), param).values()) / param.size == 8


def test_it_is_adam_where_all_is_kept(train, xp, draws):
    start, grads = draws(8)
    param, _ = train(MicroAdam(0.01, density=1.0, bucket=4), xp, start, lambda _, i: grads[i], 8)
    expected, _ = train(Adam(0.01), xp, start, lambda _, i: grads[i], 8)
    np.testing.assert_allclose(param, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "settings",
    [
        {"density": 0.0},
        {"window": 0},
        {"bucket": 0},
        {"bucket": 5, "block": 10},
        {"block": 100, "bucket": 64},
        {"block": 0},
        {"block": 2 * 65536},
    ],
    ids=str,
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        MicroAdam(**settings)
