"""The classic networks that onnx ships, written in opset 9 and IR 3, with their weights as ConstantOfShape nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

# Of each file: the tensor that takes the loss, and how it is made smaller where its architecture allows that. Of an
# image of 64 by 64 pixels, 2 by 2 are left behind the last convolution, where 7 by 7 were of one of 224 by 224.
FILES: dict[str, tuple[str | None, dict[str, Any]]] = {
    "light_bvlc_alexnet.onnx": ("r24", {"widths": {4096: 64}}),
    "light_densenet121.onnx": (None, {"image": 64}),
    "light_inception_v1.onnx": ("r143", {"image": 64, "window": 2}),
    "light_resnet50.onnx": ("r174", {"image": 64, "window": 2}),
    "light_squeezenet.onnx": ("r65", {"image": 64}),
    "light_vgg19.onnx": ("r46", {"image": 64, "widths": {512 * 7 * 7: 512 * 2 * 2, 4096: 64}}),
    "light_zfnet512.onnx": ("r20", {"widths": {4096: 64}}),
}

# With random weights that nothing has scaled.
STEEP = {"light_resnet50.onnx", "light_zfnet512.onnx"}


@pytest.mark.parametrize("name", FILES)
def test_it_trains(
    load: Callable[..., Any], resize: Callable[..., None], train: Callable[..., list[float]], name: str
) -> None:
    output, smaller = FILES[name]
    model = load(name)
    resize(model, **smaller)
    lr = 1e-6 if name in STEEP else 1e-4
    losses = train(model, output=output, sizes={"batch": 1}, from_scratch=True, lr=lr)
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", FILES)
def test_its_gradients_are_right(
    load: Callable[..., Any], resize: Callable[..., None], check: Callable[..., None], name: str
) -> None:
    output, smaller = FILES[name]
    model = load(name)
    resize(model, **smaller)
    check(model, tensors=3, output=output, sizes={"batch": 1}, from_scratch=True)
