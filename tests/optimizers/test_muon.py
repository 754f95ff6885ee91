from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import Muon


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


CASES = {
    "default": (Muon(0.01), partial(muon, lr=0.01, momentum=0.95, decay=0.1)),
    "plain momentum": (
        Muon(0.01, momentum=0.6, nesterov=False, weight_decay=0.0),
        partial(muon, lr=0.01, momentum=0.6, decay=0.0, nesterov=False),
    ),
    "matching the size of AdamW's steps": (
        Muon(0.01, scale="match_rms_adamw", ns_steps=3),
        partial(muon, lr=0.01, momentum=0.95, decay=0.1, match_rms=True, steps=3),
    ),
}


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_moves_singular_values_only(rule, reference, assert_follows):
    assert_follows(rule, reference, [(6, 4), (4, 6), (5, 5), (5,), (4, 2, 3), (4, 2, 3, 2)], float32=1e-4)


@pytest.mark.parametrize("settings", [{}, {"nesterov": False}, {"adjust_lr_fn": "match_rms_adamw"}], ids=str)
@pytest.mark.parametrize("shape", [(6, 4), (4, 6)], ids=str)
def test_is_near_torch_which_computes_in_bfloat16(settings, shape, train, train_torch, xp):
    rng = np.random.default_rng(2)
    start, grads = rng.normal(size=shape), rng.normal(size=(25, *shape))
    expected, _ = train_torch(torch.optim.Muon, start, grads, lr=0.01, **settings)
    ours = {"scale" if name == "adjust_lr_fn" else name: value for name, value in settings.items()}
    param, _ = train(Muon(0.01, **ours), xp, start, lambda _, i: grads[i], 25)
    assert np.abs(param - expected).max() < 0.01 * np.abs(expected - start).max()


def test_defaults_are_those_of_torch():
    theirs = torch.optim.Muon([torch.nn.Parameter(torch.zeros(2, 2))]).defaults
    rule = Muon()
    for name in ("lr", "momentum", "eps", "nesterov", "ns_coefficients", "ns_steps", "weight_decay"):
        assert getattr(rule, name) == theirs[name]


@pytest.mark.parametrize(
    "settings", [{"scale": "spectral"}, {"ns_coefficients": (1.0, 2.0)}, {"ns_steps": -1}], ids=str
)
def test_impossible_settings_are_refused(settings):
    (name,) = settings
    with pytest.raises(ConfigurationError, match=name):
        Muon(**settings)
