"""Dropout against PyTorch, with PyTorch fed the very masks that the graph drew."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own abbreviation
from torch import nn

import edgeopt
from edgeopt.losses import CrossEntropy
from edgeopt.optimizers import SGD

P = 0.3


class Dropping(nn.Module):
    """Dropout on features, on whole channels and inside attention; with `masks`, those instead of random ones."""

    def __init__(self) -> None:
        super().__init__()
        self.inp, self.qkv, self.head = nn.Linear(6, 8), nn.Linear(8, 24), nn.Linear(8, 3)
        self.masks: Iterator[torch.Tensor] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self._dropout(torch.relu(self.inp(x)))
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        x = x + self._attention(q, k, v)
        return self.head(self._channel_dropout(x).mean(dim=1))

    def _dropout(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, P, self.training) if self.masks is None else x * next(self.masks) / (1 - P)

    def _channel_dropout(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout1d(x, P, self.training) if self.masks is None else x * next(self.masks) / (1 - P)

    def _attention(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if self.masks is None:
            return F.scaled_dot_product_attention(q, k, v, dropout_p=P if self.training else 0.0)
        weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), dim=-1)
        return self._dropout(weights) @ v


def with_masks_as_outputs(step: bytes) -> tuple[ort.InferenceSession, list[str]]:
    """The step graph, which also returns its masks: comparisons of random words with a threshold."""
    model = onnx.load_from_string(step)
    model = onnx.shape_inference.infer_shapes(model)
    words = [v.name for v in model.graph.value_info if v.type.tensor_type.elem_type == onnx.TensorProto.INT32]
    floats = [v.name for v in model.graph.value_info if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT]
    masks = [
        node.output[0]
        for node in model.graph.node
        if (node.op_type == "GreaterOrEqual" and node.input[0] in words)
        or (node.op_type == "Less" and node.input[0] in floats)
    ]
    for name in masks:
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.BOOL, None))
    return ort.InferenceSession(model.SerializeToString()), masks


@pytest.fixture(scope="module")
def bundle() -> Any:
    torch.manual_seed(0)
    return edgeopt.export(
        Dropping(), torch.randn(4, 5, 6), loss=CrossEntropy(), optimizer=SGD(lr=0.1, momentum=0.9), seed=7
    )


def test_training_with_dropout_equals_pytorch_with_the_same_masks(bundle: Any, graph_state: Any) -> None:
    observer, mask_names = with_masks_as_outputs(bundle.graphs["step.onnx"])
    assert len(mask_names) == 3, "features, attention, channels"
    torch.manual_seed(0)
    module = Dropping()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    session = bundle.session()
    signature = bundle.manifest.signatures["step"]
    rng = np.random.default_rng(0)
    kept, drawn = [], set()
    for _ in range(50):
        x, y = rng.standard_normal((16, 5, 6)).astype(np.float32), rng.integers(0, 3, 16)
        values: dict[str, Any] = {**graph_state(bundle.manifest, session.state()), "x": x, "target": y}
        values.update({entry.name: np.float64(entry.default) for entry in bundle.manifest.hyperparameters})
        masks = observer.run(mask_names, {port.name: np.asarray(values[port.name]) for port in signature.inputs})
        kept.append([mask.mean() for mask in masks])
        drawn.add(b"".join(mask.tobytes() for mask in masks))

        module.masks = iter([torch.from_numpy(mask).float() for mask in masks])
        optimizer.zero_grad()
        loss = F.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        optimizer.step()
        assert session.step((x, y))["loss"] == pytest.approx(loss.item(), rel=1e-4)
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(session.parameters()[name], parameter.detach().numpy(), atol=1e-4, err_msg=name)

    assert len(drawn) == 50, "every step draws its own masks"
    # 50 steps of 640, 400 and 80 draws: four standard deviations of a fair coin with probability 1 - P.
    for rate, draws in zip(np.mean(kept, axis=0), (640, 400, 80), strict=True):
        assert abs(rate - (1 - P)) < 4 * math.sqrt(P * (1 - P) / (50 * draws))


def test_evaluation_and_prediction_drop_nothing(bundle: Any) -> None:
    torch.manual_seed(0)
    module = Dropping().eval()
    x = np.random.default_rng(0).standard_normal((4, 5, 6)).astype(np.float32)
    expected = module(torch.from_numpy(x)).detach().numpy()
    session = bundle.session()
    for _ in range(2):
        np.testing.assert_allclose(session.predict(x), expected, atol=1e-6)


def test_microbatches_draw_different_masks(bundle: Any) -> None:
    x, y = np.ones((4, 5, 6), np.float32), np.zeros(4, np.int64)
    session = bundle.session()
    assert session.accumulate((x, y))["loss"] != session.accumulate((x, y))["loss"]


def test_the_seed_decides(bundle: Any) -> None:
    x, y = np.ones((4, 5, 6), np.float32), np.zeros(4, np.int64)
    first, same, other = bundle.session(), bundle.session(), bundle.session()
    other.reset_seed(8)
    losses = [session.step((x, y))["loss"] for session in (first, same, other)]
    assert losses[0] == losses[1] != losses[2]
