"""Workloads for peers that start from an ONNX file: `python workloads/onnx_files.py WORKLOAD FOLDER KIND`.

`loss.onnx` is the loss of a batch, with sizes fixed and every operator in the form of inference: BatchNorm is written
out with the statistics of the batch, and labels are rows of zeros and a one. `logits.onnx` is what the documentation of
onnxruntime-training asks for: logits from torch's older exporter, in training mode, with a free batch size. A JSON file
beside each names what trains.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot

sys.path.insert(0, str(Path(__file__).parents[1]))

from workloads import WORKLOADS

__all__ = ["KINDS"]

KINDS = ("loss", "logits")


class BatchStatistics(nn.Module):
    """A BatchNorm in training mode, without running statistics, in operators that all differentiate."""

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The normalised images."""
        centred = x - x.mean((0, 2, 3), keepdim=True)
        variance = (centred * centred).mean((0, 2, 3), keepdim=True)
        normal = centred / torch.sqrt(variance + self.eps)
        return normal * self.weight.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)


class Loss(nn.Module):
    """The loss of a batch."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Cross entropy of labels."""
        return cross_entropy(self.model(inputs).flatten(0, -2), labels.flatten())


class TargetLoss(nn.Module):
    """The loss of a batch, of operators that everybody has a derivative of."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Cross entropy of rows that are one for the label and zero elsewhere."""
        likelihoods = torch.log(torch.softmax(self.model(inputs).flatten(0, -2), -1))
        return -(likelihoods * targets).sum(-1).mean()


class FlatLogits(nn.Module):
    """Logits with one leading axis."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """A row for each label."""
        rows: torch.Tensor = self.model(inputs).flatten(0, -2)
        return rows


def write_out_norms(module: nn.Module) -> None:
    """Replace each BatchNorm in training mode with what it computes, in place; an activation inside it stays."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.BatchNorm2d) and child.training:
                # timm's norms have their activation inside.
                rest = [getattr(child, part) for part in ("drop", "act") if hasattr(child, part)]
                setattr(parent, name, nn.Sequential(BatchStatistics(child), *rest))


def main(name: str, place: str, kind: str) -> None:
    """Write one of the files."""
    workload, folder = WORKLOADS[name], Path(place)
    module = workload.module()
    with np.load(folder / "weights.npz") as arrays:
        module.load_state_dict({key: torch.from_numpy(arrays[key]) for key in arrays.files})
    inputs, labels = (torch.from_numpy(array) for array in workload.batch(0))
    with torch.no_grad():
        classes = module(inputs).shape[-1]
    if kind == "loss":
        write_out_norms(module)
    wrapped = TargetLoss(module) if kind == "loss" else FlatLogits(module)
    # Names of what trains, under which the file holds it.
    trained = [key for key, value in wrapped.named_parameters() if value.requires_grad]
    (folder / f"{kind}.json").write_text(json.dumps(trained))
    if kind == "loss":
        program = torch.onnx.export(
            wrapped,
            (inputs, one_hot(labels.flatten(), classes).float()),
            dynamo=True,
            optimize=False,
            opset_version=18,
            input_names=["inputs", "targets"],
            output_names=["loss"],
            verbose=False,
        )
        if program is None:
            raise TypeError("torch.onnx.export gave no program.")
        program.save(str(folder / "loss.onnx"))
        return
    torch.onnx.export(
        wrapped,
        (inputs,),
        str(folder / "logits.onnx"),
        dynamo=False,
        opset_version=15,
        training=torch.onnx.TrainingMode.TRAINING,
        do_constant_folding=False,
        input_names=["inputs"],
        output_names=["logits"],
        dynamic_axes={"inputs": {0: "batch"}, "logits": {0: "rows"}},
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
