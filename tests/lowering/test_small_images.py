"""Convolutions of a few positions: one product over all images gives what the convolution gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgeopt.tracing import op

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("size", "settings"),
    [
        ((2, 2), {"pads": [1, 1, 1, 1]}),
        ((4, 4), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ((3, 3), {}),
        ((5, 2), {"pads": [2, 1, 2, 1], "strides": [3, 1], "dilations": [2, 1]}),
    ],
    ids=str,
)
@pytest.mark.parametrize("bias", [True, False])
def test_equals_torch(lowered, size, settings, bias):
    x = RANDOM.standard_normal((3, 176, *size)).astype(np.float32)
    w = (RANDOM.standard_normal((176, 176, 3, 3)) / 40).astype(np.float32)
    b = RANDOM.standard_normal(176).astype(np.float32)
    operands = {"x": x, "w": w, **({"b": b} if bias else {})}

    def program(a):
        return {"y": op.Conv(*a.values(), **settings)}

    found = lowered(program, operands)
    assert "MatMul" in found.operators
    pads = settings.get("pads", [0, 0])
    expected = torch.nn.functional.conv2d(
        torch.tensor(x),
        torch.tensor(w),
        torch.tensor(b) if bias else None,
        padding=pads[:2],
        stride=settings.get("strides", 1),
        dilation=settings.get("dilations", 1),
    )
    np.testing.assert_allclose(found.run()["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("x", "w", "settings"),
    [
        ((3, 176, 4, 4), (176, 176, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((3, 16, 2, 2), (16, 16, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((3, 512, 2, 2), (512, 512, 1, 1), {}),
        ((3, 512, 2, 2), (512, 256, 3, 3), {"pads": [1, 1, 1, 1], "group": 2}),
    ],
    ids=["positions", "weight", "point", "groups"],
)
def test_others_stay(lowered, x, w, settings):
    arrays = {"x": np.zeros(x, np.float32), "w": np.zeros(w, np.float32)}
    found = lowered(lambda a: {"y": op.Conv(a["x"], a["w"], **settings)}, arrays)
    assert found.operators == ["Conv"]
