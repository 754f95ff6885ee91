"""Recomputation through the front door: the same training, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import edgeopt


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        return x + self.drop(torch.relu(self.norm(self.conv(x))))


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.blocks = nn.Sequential(*(Block(4) for _ in range(6)))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def trained(model, recompute):
    bundle = edgeopt.export(
        model,
        torch.zeros(2, 1, 8, 8),
        loss=edgeopt.losses.CrossEntropy(),
        optimizer=edgeopt.optimizers.AdamW(lr=1e-2),
        transforms=[edgeopt.transforms.ClipByGlobalNorm(1.0)],
        recompute=recompute,
    )
    session = bundle.session(deterministic=True)
    random = np.random.default_rng(0)
    losses = []
    for _ in range(4):
        x, target = random.standard_normal((5, 1, 8, 8)).astype(np.float32), random.integers(0, 3, 5)
        losses.append(session.step((x, target))["loss"])
        session.accumulate((x[:3], target[:3]))
        session.accumulate((x[3:], target[3:]))
        session.apply()
    return bundle, losses, session.parameters()


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Deep()


@pytest.fixture(scope="module")
def plain(model):
    return trained(model, ())


@pytest.mark.parametrize("what", ["auto", "blocks.*"])
def test_training_is_the_same_to_the_last_bit(model, plain, what):
    bundle, losses, parameters = trained(model, what)
    assert losses == plain[1]
    for name, value in plain[2].items():
        np.testing.assert_array_equal(parameters[name], value)
    assert len(bundle.graphs["step.onnx"]) > len(plain[0].graphs["step.onnx"])
    for name in ("apply.onnx", "evaluate.onnx", "predict.onnx"):
        assert bundle.graphs[name] == plain[0].graphs[name]
