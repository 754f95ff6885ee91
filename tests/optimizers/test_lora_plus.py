"""LoRA+ in a bundle against a PyTorch optimizer with two rates."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import ConfigurationError, ParameterPatternError
from edgeopt.losses import MSE
from edgeopt.optimizers import AdamW, lora_plus


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(6, 4)
        self.lora_A = nn.Parameter(torch.randn(2, 6) / 6**0.5)
        self.lora_B = nn.Parameter(torch.zeros(4, 2))

    def forward(self, x):
        return self.base(x) + x @ self.lora_A.T @ self.lora_B.T


@pytest.fixture
def model() -> Adapted:
    torch.manual_seed(0)
    return Adapted().double()


@pytest.fixture
def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [tuple(torch.randn(5, n, generator=generator).double() for n in (6, 4)) for _ in range(25)]  # type: ignore[misc]  # two each


@pytest.mark.parametrize("ratio", [16.0, 4.0])
def test_the_factor_that_begins_at_zero_has_a_larger_rate(model, batches, ratio):
    optimizer = lora_plus(AdamW(1e-3, weight_decay=0.1), ratio)
    bundle = edgeopt.export(model, batches[0][0], loss=MSE(), optimizer=optimizer, trainable="lora_*")
    session = bundle.session()
    theirs = torch.optim.AdamW(
        [{"params": [model.lora_A], "lr": 1e-3}, {"params": [model.lora_B], "lr": ratio * 1e-3}], weight_decay=0.1
    )
    for x, target in batches:
        session.step({"x": x.numpy(), "target": target.numpy()})
        theirs.zero_grad()
        nn.functional.mse_loss(model(x), target).backward()
        theirs.step()
    for name in ("lora_A", "lora_B"):
        np.testing.assert_allclose(session.state()[name], getattr(model, name).detach().numpy(), rtol=1e-9, atol=1e-12)


def test_the_ratio_is_a_number_of_the_device(model, batches):
    bundle = edgeopt.export(model, batches[0][0], loss=MSE(), optimizer=lora_plus(AdamW()), trainable="lora_*")
    session = bundle.session()
    session.set_hyper("optimizer.lora_B.lr_multiplier", 0.0)
    x, target = batches[0]
    session.step({"x": x.numpy(), "target": target.numpy()})
    np.testing.assert_array_equal(session.state()["lora_B"], 0.0)


def test_a_model_without_adapters_is_refused(batches):
    with pytest.raises(ParameterPatternError, match=r"lora_\[Bb\]"):
        edgeopt.export(nn.Linear(6, 4).double(), batches[0][0], loss=MSE(), optimizer=lora_plus(AdamW()))


def test_a_ratio_below_one_is_refused():
    with pytest.raises(ConfigurationError, match="ratio"):
        lora_plus(AdamW(), 0.5)
