from __future__ import annotations

from collections.abc import Callable

import pytest
import torch


def group_normalization(x, scale, bias):
    """torch's, whose scale and bias belong to the channels."""
    x, scale, bias = (torch.tensor(array) for array in (x, scale, bias))
    if len(scale) < x.shape[1]:
        scale, bias = (array.repeat_interleave(x.shape[1] // len(array)) for array in (scale, bias))
    return [torch.nn.functional.group_norm(x, 2, scale, bias, 0.01)]


@pytest.mark.parametrize("shape", ["6", "6, 5", "6, height, 4"])
@pytest.mark.parametrize(("opset", "size"), [(18, 2), (21, 6)])
def test_group_normalization(same_results: Callable[..., list[str]], opset: int, size: int, shape: str) -> None:
    text = f"""
    <ir_version: 8, opset_import: ["" : {opset}]>
    groups (float[batch, {shape}] x, float[{size}] scale, float[{size}] bias) => (float[batch, {shape}] y)
    {{ y = GroupNormalization<num_groups = 2, epsilon = 0.01>(x, scale, bias) }}
    """
    sizes = {"batch": 3, "height": 2}
    operators = same_results(text, sizes=sizes, order=2, reference=group_normalization)
    assert "GroupNormalization" not in operators


@pytest.mark.parametrize(("offset", "scale"), [("[1.0]", "[0.5]"), ("[1.0, 2.0, -1.0]", "[0.5, 1.5, 2.5]")])
@pytest.mark.parametrize("dtype", ["float", "int64"])
def test_scaler(same_results: Callable[..., list[str]], dtype: str, offset: str, scale: str) -> None:
    text = f"""
    <ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
    scaled ({dtype}[batch, 3] x) => (float[batch, 3] y) {{
        y = ai.onnx.ml.Scaler<offset = {offset}, scale = {scale}>(x)
    }}
    """
    assert "Scaler" not in same_results(text, sizes={"batch": 2}, order=1)
