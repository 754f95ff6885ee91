"""The classic networks that onnx ships, written in opset 9 and IR 3, with their weights as ConstantOfShape nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

# Of each file: the tensor that takes the loss, and how it is made smaller where its architecture allows that. Of an
# image of 64 by 64 pixels, 2 by 2 are left behind the last convolution, where 7 by 7 were of one of 224 by 224.
FILES: dict[str, tuple[str | None, dict[str, Any]]] = {
    "light_bvlc_alexnet.onnx": ("r24", {"sizes": {4096: 64}}),
    "light_densenet121.onnx": (None, {"sizes": {224: 64}}),
    "light_inception_v1.onnx": ("r143", {"sizes": {224: 64}, "window": 2}),
    "light_resnet50.onnx": ("r174", {"sizes": {224: 64}, "window": 2}),
    "light_squeezenet.onnx": ("r65", {"sizes": {224: 64}}),
    "light_vgg19.onnx": ("r46", {"sizes": {224: 64, 512 * 7 * 7: 512 * 2 * 2, 4096: 64}}),
    "light_zfnet512.onnx": ("r20", {"sizes": {4096: 64}}),
}


@pytest.mark.parametrize("name", FILES)
def test_it_trains(
    load: Callable[..., Any], resize: Callable[..., None], train: Callable[..., list[float]], name: str
) -> None:
    output, smaller = FILES[name]
    model = load(name)
    resize(model, **smaller)
    losses = train(model, output=output, sizes={"batch": 1})
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", FILES)
def test_its_gradients_are_right(
    load: Callable[..., Any], resize: Callable[..., None], check: Callable[..., None], name: str
) -> None:
    output, smaller = FILES[name]
    model = load(name)
    resize(model, **smaller)
    check(model, tensors=3, output=output, sizes={"batch": 1})
