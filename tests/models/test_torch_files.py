"""Files written by torch's own two exporters, with what they do to parameters."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from edgeopt_exporters.onnx_file import from_onnx


class Network(nn.Module):
    """A convolution with BatchNorm, a block with a tied weight, Dropout; several tensors that start alike."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.BatchNorm2d(8)
        self.tied = nn.Linear(8, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.second(self.norm(self.stem(x))))
        x = nn.functional.dropout(x.mean((2, 3)), 0.1, self.training)
        x = torch.tanh(self.tied(x)) @ self.tied.weight
        return self.head(x)


def written(path: Path, *, dynamo: bool, training: bool) -> onnx.ModelProto:
    torch.manual_seed(0)
    network = Network().train(training)
    example = torch.zeros(2, 3, 6, 6)
    mode = torch.onnx.TrainingMode.TRAINING if training else torch.onnx.TrainingMode.EVAL
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters warn of each other
        if dynamo:
            dynamic = ({0: torch.export.Dim.DYNAMIC},)
            torch.onnx.export(
                network, (example,), path, dynamo=True, optimize=False, dynamic_shapes=dynamic, verbose=False
            )
        else:
            torch.onnx.export(
                network,
                (example,),
                path,
                dynamo=False,
                training=mode,
                do_constant_folding=False,
                input_names=["x"],
                dynamic_axes={"x": {0: "batch"}},
            )
    return onnx.load(path)


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
def test_both_exporters(
    tmp_path: Path,
    train: Callable[..., list[float]],
    check: Callable[..., None],
    dynamo: bool,
    training: bool,
) -> None:
    model = written(tmp_path / "network.onnx", dynamo=dynamo, training=training)
    forward = from_onnx(model)
    elements = sum(array.size for array in forward.parameters.values())
    statistics = {name: array.size for name, array in forward.buffers.items()}
    assert elements == sum(parameter.numel() for parameter in Network().parameters())
    assert list(statistics.values()) == [8, 8, 8, 8]
    losses = train(model, lr=1e-2)
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
    check(model)


def test_training_moves_the_statistics_of_a_training_file(tmp_path: Path) -> None:
    model: Any = written(tmp_path / "network.onnx", dynamo=False, training=True)
    updated = from_onnx(model).train.updated_buffers
    assert {name.rsplit(".", 1)[-1] for name in updated} == {"running_mean", "running_var"}
    assert len(updated) == 4
