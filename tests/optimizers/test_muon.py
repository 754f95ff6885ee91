from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import AdaMuon, Muon, NorMuon


def muon(theta, grads, *, lr, momentum, decay, nesterov=True, match_rms=False, steps=5):
    """By singular values: each iteration maps s to a·s + b·s³ + c·s⁵ and leaves the singular vectors alone."""
    a, b, c = 3.4445, -4.775, 2.0315
    shape = theta.shape
    rows, columns = (shape[0], theta.size // shape[0]) if theta.ndim > 1 else (1, theta.size)
    scale = 0.2 * np.sqrt(max(rows, columns)) if match_rms else np.sqrt(max(1.0, rows / columns))
    buffer = np.zeros_like(theta)
    for g in grads:
        buffer = momentum * buffer + (1 - momentum) * g
        x = (1 - momentum) * g + momentum * buffer if nesterov else buffer
        left, s, right = np.linalg.svd(x.reshape(rows, columns), full_matrices=False)
        s = s / max(np.linalg.norm(s), 1e-7)
        for _ in range(steps):
            s = a * s + b * s**3 + c * s**5
        theta = theta * (1 - lr * decay) - lr * scale * ((left * s) @ right).reshape(shape)
    return theta


def orthogonalized(x):
    """Five iterations, by singular values again."""
    left, s, right = np.linalg.svd(x, full_matrices=False)
    s = s / max(np.linalg.norm(s), 1e-7)
    for _ in range(5):
        s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
    # What is zero in a matrix stays so, but for the rounding of its decomposition.
    return (left * s) @ right * x.any(axis=0) * x.any(axis=1)[:, None]


def normuon(
    theta, grads, *, lr, momentum=0.95, b2=0.95, eps=1e-10, decay=0.0, nesterov=True, match_rms=False, kept=True
):
    shape = theta.shape
    rows, columns = (shape[0], theta.size // shape[0]) if theta.ndim > 1 else (1, theta.size)
    scale = 0.2 * np.sqrt(max(rows, columns)) if match_rms else np.sqrt(max(1.0, rows / columns))
    buffer, v = np.zeros_like(theta), np.zeros(rows)
    for g in grads:
        buffer = momentum * buffer + (1 - momentum) * g
        x = (1 - momentum) * g + momentum * buffer if nesterov else buffer
        x = orthogonalized(x.reshape(rows, columns))
        v = b2 * v + (1 - b2) * np.mean(x**2, axis=1)
        y = np.diag(1 / (np.sqrt(v) + eps)) @ x
        size = np.linalg.norm(x) * scale if kept else 0.2 * np.sqrt(theta.size)
        theta = theta * (1 - lr * decay) - lr * size / (np.linalg.norm(y) + eps) * y.reshape(shape)
    return theta


def adamuon(
    theta, grads, *, lr, momentum=0.9, b2=0.95, eps=1e-10, decay=0.0, nesterov=False, original=False, signed=False
):
    shape = theta.shape
    rows, columns = (shape[0], theta.size // shape[0]) if theta.ndim > 1 else (1, theta.size)
    scale = np.sqrt(max(1.0, rows / columns)) if original else 0.2 * np.sqrt(max(rows, columns))
    buffer, v = np.zeros_like(theta), np.zeros((rows, columns))
    for t, g in enumerate(grads, 1):
        buffer = momentum * buffer + (1 - momentum) * g
        x = (1 - momentum) * g + momentum * buffer if nesterov else buffer
        x = orthogonalized((np.sign(x) if signed else x).reshape(rows, columns))
        v = b2 * v + (1 - b2) * x**2
        y = x / (np.sqrt(v / (1 - b2**t)) + eps)
        y = y * np.sqrt(min(rows, columns)) / (np.linalg.norm(y) + eps)
        theta = theta * (1 - lr * decay) - lr * scale * y.reshape(shape)
    return theta


CASES = {
    "default": (Muon(0.01), partial(muon, lr=0.01, momentum=0.95, decay=0.1)),
    "plain momentum": (
        Muon(0.01, momentum=0.6, nesterov=False, weight_decay=0.0),
        partial(muon, lr=0.01, momentum=0.6, decay=0.0, nesterov=False),
    ),
    "matching the size of AdamW's steps": (
        Muon(0.01, adjust_lr_fn="match_rms_adamw", ns_steps=3),
        partial(muon, lr=0.01, momentum=0.95, decay=0.1, match_rms=True, steps=3),
    ),
}


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_moves_singular_values_only(rule, reference, assert_follows):
    assert_follows(rule, reference, [(6, 4), (4, 6), (5, 5), (5,), (4, 2, 3), (4, 2, 3, 2)], float32=1e-4)


ADAPTIVE = {
    "normuon": (NorMuon(0.01), partial(normuon, lr=0.01)),
    "normuon, of the size of AdamW's steps": (
        NorMuon(0.01, nesterov=False, adjust_lr_fn="match_rms_adamw", weight_decay=0.1),
        partial(normuon, lr=0.01, nesterov=False, match_rms=True, decay=0.1),
    ),
    "normuon, as in the paper": (
        NorMuon(0.01, momentum=0.7, beta2=0.8, eps2=1e-3, preserve_norm=False),
        partial(normuon, lr=0.01, momentum=0.7, b2=0.8, eps=1e-3, kept=False),
    ),
    "adamuon": (AdaMuon(0.01), partial(adamuon, lr=0.01)),
    "adamuon, other": (
        AdaMuon(0.01, momentum=0.7, nesterov=True, adjust_lr_fn="original", beta2=0.8, eps2=1e-3, weight_decay=0.1),
        partial(adamuon, lr=0.01, momentum=0.7, nesterov=True, original=True, b2=0.8, eps=1e-3, decay=0.1),
    ),
}


@pytest.mark.parametrize(("rule", "reference"), ADAPTIVE.values(), ids=ADAPTIVE)
def test_normalizes_what_was_made_orthogonal(rule, reference, assert_follows):
    # The smallest elements, which are enlarged most, have the rounding of the largest.
    shapes = [(6, 4), (4, 6), (5, 5), (5,), (4, 2, 3), (4, 2, 3, 2)]
    assert_follows(rule, reference, shapes, smallest=0.1, float32=1e-4)


@pytest.mark.parametrize("settings", [{}, {"nesterov": False}, {"adjust_lr_fn": "match_rms_adamw"}], ids=str)
@pytest.mark.parametrize("shape", [(6, 4), (4, 6)], ids=str)
def test_is_near_torch_which_computes_in_bfloat16(settings, shape, train, train_torch, xp):
    rng = np.random.default_rng(2)
    start, grads = rng.normal(size=shape), rng.normal(size=(25, *shape))
    expected, _ = train_torch(torch.optim.Muon, start, grads, lr=0.01, **settings)
    param, _ = train(Muon(0.01, **settings), xp, start, lambda _, i: grads[i], 25)
    assert np.abs(param - expected).max() < 0.01 * np.abs(expected - start).max()


def test_defaults_are_those_of_torch():
    theirs = torch.optim.Muon([torch.nn.Parameter(torch.zeros(2, 2))]).defaults
    rule = Muon()
    for name in ("lr", "momentum", "eps", "nesterov", "ns_coefficients", "ns_steps", "weight_decay"):
        assert getattr(rule, name) == theirs[name]


@pytest.mark.parametrize(
    "settings", [{"adjust_lr_fn": "spectral"}, {"ns_coefficients": (1.0, 2.0)}, {"ns_steps": -1}], ids=str
)
def test_impossible_settings_are_refused(settings):
    (name,) = settings
    with pytest.raises(ConfigurationError, match=name):
        Muon(**settings)


@pytest.mark.parametrize(
    "rule", [AdaMuon(0.5), NorMuon(0.5, preserve_norm=False)], ids=lambda rule: type(rule).__name__
)
@pytest.mark.parametrize("shape", [(6, 4), (3, 8), (5,)], ids=str)
def test_steps_have_a_fifth_of_the_rate_as_their_root_mean_square(rule, shape, train, draws, xp):
    start, grads = draws(2, shape)
    before, after = (train(rule, xp, start, lambda _, i: grads[i], steps)[0] for steps in (1, 2))
    np.testing.assert_allclose(np.sqrt(np.mean((after - before) ** 2)), 0.1, rtol=1e-9)


def test_signs_are_made_orthogonal_where_that_is_asked(train, xp):
    # Far from zero, so that no sign hangs on rounding; of full rank, so that there is a decomposition.
    start, rng = np.zeros((4, 3)), np.random.default_rng(3)
    grads = np.where(rng.normal(size=(8, 4, 3)) > 0, 1.0, -1.0) * rng.uniform(1, 3, (8, 4, 3))
    param, _ = train(AdaMuon(0.1, signed=True), xp, start, lambda _, i: grads[i], 8)
    np.testing.assert_allclose(param, adamuon(start, grads, lr=0.1, signed=True), rtol=1e-9, atol=1e-12)
    assert np.abs(param - adamuon(start, grads, lr=0.1)).max() > 1e-3
