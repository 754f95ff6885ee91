"""Training through the exported graphs equals training in PyTorch: same weights, same batches, fifty steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from edgeopt.metrics import Accuracy
from edgeopt.optimizers import SGD, AdamW
from edgeopt.schedules import WarmupCosine
from edgeopt.transforms import ClipByGlobalNorm

STEPS = 50
LR, WARMUP, TOTAL, MAX_NORM = 5e-3, 5, 60, 0.5
# Softmax does not change when every key gets the same bias, so the key biases have gradient zero and what float32
# computes for it is rounding, about 1e-9. With Adam's default eps of 1e-8 that noise would be scaled up to steps of the
# size of the learning rate, in PyTorch as here; with this one it stays noise.
EPS = 1e-5


def cosine(step: int) -> float:
    if step < WARMUP:
        return LR * step / WARMUP
    return LR * 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (TOTAL - WARMUP)))


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=LR, momentum=0.9, weight_decay=1e-3)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=LR, weight_decay=0.05, eps=EPS)


RUNS: dict[str, tuple[dict[str, Any], Callable[[Any], torch.optim.Optimizer], bool]] = {
    "sgd": ({"optimizer": SGD(lr=LR, momentum=0.9, weight_decay=1e-3)}, sgd, False),
    "adamw": (
        {
            "optimizer": AdamW(lr=WarmupCosine(LR, WARMUP, TOTAL), weight_decay=0.05, eps=EPS),
            "transforms": [ClipByGlobalNorm(MAX_NORM)],
        },
        adamw,
        True,
    ),
}
PRECISIONS = {
    "float32": (np.float32, torch.float32, 1e-4, 1e-4),
    "float64": (np.float64, torch.float64, 1e-9, 1e-9),
}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("run", RUNS)
def test_fifty_steps_equal_pytorch(case: Any, run: str, precision: str) -> None:
    settings, make_optimizer, scheduled = RUNS[run]
    dtype, torch_dtype, loss_tolerance, parameter_tolerance = PRECISIONS[precision]
    module = case.module(torch_dtype)
    session = case.export(module, dtype, metrics=[Accuracy(class_axis=case.loss.class_axis)], **settings).session(
        threads=1
    )
    optimizer = make_optimizer(module.parameters())

    sizes = [(8, 5, 12)[i % 3] for i in range(STEPS)]
    for step, (x, y) in enumerate(case.batches(sizes, dtype)):
        metrics = session.step((x, y))
        if scheduled:
            for group in optimizer.param_groups:
                group["lr"] = cosine(step)
            assert metrics["lr"] == pytest.approx(cosine(step), rel=1e-12, abs=1e-15)
        optimizer.zero_grad()
        loss = case.torch_loss(module(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        if scheduled:
            norm = torch.nn.utils.clip_grad_norm_(module.parameters(), MAX_NORM)
            assert metrics["grad_norm"] == pytest.approx(norm.item(), rel=max(loss_tolerance, 1e-6) * 10)
        optimizer.step()
        assert metrics["loss"] == pytest.approx(loss.item(), rel=loss_tolerance), f"step {step}"

    state = session.state()
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        difference = np.abs(state[name] - tensor.detach().numpy()).max()
        assert difference <= parameter_tolerance, f"{name} differs by {difference}"

    x, y = next(case.batches([6], dtype))
    module.eval()
    with torch.no_grad():
        expected = module(torch.from_numpy(x))
        expected_loss = case.torch_loss(expected, torch.from_numpy(y)).item()
    np.testing.assert_allclose(session.predict(x), expected.numpy(), rtol=1e-3, atol=10 * parameter_tolerance)
    assert session.evaluate((x, y))["loss"] == pytest.approx(expected_loss, rel=10 * loss_tolerance)
