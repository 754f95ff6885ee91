"""Eva and AdaFisher, with what layers say of their weights given."""

from __future__ import annotations

from typing import Any

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import AdaFisher, Eva, GroupArrays

SHAPES = {"first": (4, 3), "second": (2, 4), "bias": (4,)}


def data(steps=12):
    rng = np.random.default_rng(0)
    start = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
    batches = [{name: rng.normal(size=shape) for name, shape in SHAPES.items()} for _ in range(steps)]
    sides = [
        {n: (rng.normal(size=s[1]), rng.normal(size=s[0])) for n, s in SHAPES.items() if len(s) == 2} for _ in batches
    ]
    return start, batches, sides


def run(rule, start, batches, sides):
    params, states = dict(start), {name: rule.init(value) for name, value in start.items()}
    hyper = {name: np.asarray(value) for name, value in {**rule.hyperparameters(), "lr": rule.lr}.items()}
    for t, (grads, side) in enumerate(zip(batches, sides, strict=True), 1):
        given = {name: dict(zip(("columns", "rows"), side.get(name, ()), strict=False)) for name in params}
        full = {name: {**states[name], **given[name]} for name in params}
        params, states, _ = rule.update_all(numpy_namespace, GroupArrays(params, grads, full, {}), hyper, np.asarray(t))
    return params


def eva(start, batches, sides, *, lr, momentum=0.9, xi=0.95, damping=0.03, clip=1e-3, decay=0.0):
    params = dict(start)
    mean = {name: [0.0, 0.0] for name in params}
    buffers = dict.fromkeys(params, 0.0)
    for grads, side in zip(batches, sides, strict=True):
        steps = dict(grads)
        for name, (a, b) in side.items():
            mean[name] = [xi * old + (1 - xi) * new for old, new in zip(mean[name], (a, b), strict=True)]
            # The inverse of b·bᵀ ⊗ a·aᵀ + damping, as the rank-one matrix that it is.
            factor = np.outer(mean[name][1], mean[name][0]).reshape(-1)
            system = np.outer(factor, factor) + damping * np.eye(factor.size)
            steps[name] = np.linalg.solve(system, grads[name].reshape(-1)).reshape(grads[name].shape)
        total = sum(lr**2 * np.sum(steps[name] * grads[name]) for name in side)
        for name in params:
            step = steps[name] * (min(1.0, np.sqrt(clip / total)) if name in side else 1.0)
            buffers[name] = momentum * buffers[name] + step + decay * params[name]
            params[name] = params[name] - lr * buffers[name]
    return params


def adafisher(start, batches, sides, *, lr, b1=0.9, keep=0.08, add=0.008, damping=1e-3, every=100, decay=0.0):
    params, m = dict(start), dict.fromkeys(start, 0.0)
    factors = {name: [np.ones(shape[-1]), np.ones(shape[0])] for name, shape in SHAPES.items() if len(shape) == 2}
    for t, (grads, side) in enumerate(zip(batches, sides, strict=True), 1):
        for name, param in params.items():
            m[name] = b1 * m[name] + (1 - b1) * grads[name]
            fisher: Any = 1.0
            if name in side:
                if (t - 1) % every == 0:
                    factors[name] = [
                        keep * old + add * (new - new.min()) / (new.max() - new.min())
                        for old, new in zip(factors[name], side[name], strict=True)
                    ]
                fisher = np.outer(factors[name][1], factors[name][0])
            params[name] = param * (1 - lr * decay) - lr / (1 - b1**t) * m[name] / (fisher + damping)
    return params


@pytest.mark.parametrize(
    ("rule", "reference", "settings"),
    [
        (Eva(), eva, {"lr": 0.1}),
        (
            Eva(0.01, momentum=0.5, xi=0.5, damping=0.5, kl_clip=1.0, weight_decay=0.1),
            eva,
            {"lr": 0.01, "momentum": 0.5, "xi": 0.5, "damping": 0.5, "clip": 1.0, "decay": 0.1},
        ),
        (AdaFisher(1e-3), adafisher, {"lr": 1e-3}),
        (
            AdaFisher(0.01, beta1=0.5, keep=0.9, add=0.1, damping=0.1, every=3, weight_decay=0.1),
            adafisher,
            {"lr": 0.01, "b1": 0.5, "keep": 0.9, "add": 0.1, "damping": 0.1, "every": 3, "decay": 0.1},
        ),
    ],
    ids=["eva", "eva, other", "adafisher", "adafisher, other"],
)
def test_follows_the_equations(rule, reference, settings):
    params, expected = run(rule, *data()), reference(*data(), **settings)
    for name, value in expected.items():
        np.testing.assert_allclose(params[name], value, rtol=1e-11, atol=1e-11, err_msg=name)


def test_a_kernel_is_a_matrix_of_its_outputs(xp):
    rng = np.random.default_rng(0)
    kernel, grad, rows, columns = (rng.normal(size=shape) for shape in ((3, 2, 2, 2), (3, 2, 2, 2), (3,), (8,)))
    for rule in (Eva(), AdaFisher(every=1)):
        moved = []
        for shape in (kernel.shape, (3, 8)):
            param = xp.asarray(kernel.reshape(shape))
            slots = {name: xp.asarray(value) for name, value in rule.init(kernel.reshape(shape)).items()}
            state = {**slots, "rows": xp.asarray(rows), "columns": xp.asarray(columns)}
            hyper = {name: xp.asarray(value) for name, value in {**rule.hyperparameters(), "lr": 0.1}.items()}
            moved.append(
                np.asarray(rule.update(xp, param, xp.asarray(grad.reshape(shape)), state, hyper, xp.asarray(1))[0])
            )
        np.testing.assert_array_equal(moved[0].reshape(3, 8), moved[1])
        assert not np.array_equal(moved[0], kernel)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Eva(damping=0.0), "damping"),
        (lambda: Eva(xi=1.0), "xi"),
        (lambda: AdaFisher(damping=0.0), "damping"),
        (lambda: AdaFisher(every=0), "every"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
