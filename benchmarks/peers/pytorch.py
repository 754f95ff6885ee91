"""PyTorch eager with the optimizer implementation it takes by default, "foreach" or "fused"; and `torch.compile`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from peers.base import Checked, Step
from workloads import ADAMW, Batch, Workload
from workloads.updates import gradients, mean_square

if TYPE_CHECKING:
    import torch

PACKAGES = ("torch", "torchvision", "timm", "transformers")


def imports(workload: Workload, variant: str) -> None:
    """Also what PyTorch, and the package that the module comes from, import late."""
    import torch

    # The first optimizer imports PyTorch's compiler, 155 MiB.
    torch.optim.AdamW([torch.zeros(1)], lr=1.0)
    with torch.device("meta"):
        workload.build()
    if variant == "compile":
        import torch._inductor.compile_fx


def prepare(workload: Workload, variant: str, folder: Path) -> None:
    """PyTorch ships no artifact: the program is Python."""


def load(workload: Workload, variant: str, folder: Path, threads: int) -> Step | Checked:
    """A step in the manner of PyTorch's tutorials."""
    if variant == "compile":
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    import torch
    from torch.nn.functional import cross_entropy

    torch.set_num_threads(threads)
    module = workload.module()
    with np.load(folder.parent / "weights.npz") as arrays:
        module.load_state_dict({name: torch.from_numpy(arrays[name]) for name in arrays.files})
    # False would switch PyTorch's own choice off; None leaves it.
    optimizer = torch.optim.AdamW(
        [parameter for parameter in module.parameters() if parameter.requires_grad],
        lr=workload.lr,
        weight_decay=ADAMW["weight_decay"],
        foreach=variant == "foreach" or None,
        fused=variant == "fused" or None,
    )
    update = torch.compile(optimizer.step) if variant == "compile" else optimizer.step
    if workload.update:
        return updates_only(workload, module, update)

    def loss_of(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return cross_entropy(module(inputs).flatten(0, -2), labels.flatten())

    forward = torch.compile(loss_of) if variant == "compile" else loss_of

    def step(batch: Batch) -> float:
        inputs, labels = batch
        optimizer.zero_grad(set_to_none=True)
        loss = forward(torch.from_numpy(inputs), torch.from_numpy(labels))
        loss.backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
        update()
        return loss.item()

    return step


def updates_only(workload: Workload, module: torch.nn.Module, update: Callable[[], object]) -> Checked:
    """Updates of a module whose gradients stay the same."""
    import torch

    parameters = dict(module.named_parameters())
    for name, gradient in gradients(workload.name).items():
        parameters[name].grad = torch.from_numpy(gradient)
    arrays = {name: parameter.detach().numpy() for name, parameter in parameters.items()}
    return Checked(lambda batch: update(), lambda: mean_square(arrays))
