"""Optimizers of PyTorch with narrow state: bitsandbytes, torchao, and edgeopt's own are told apart by the variant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from peers.base import Cannot, Checked
from peers.pytorch import updates_only
from workloads import ADAMW, Workload

PACKAGES = ("torch", "bitsandbytes", "torchao")


def _made(variant: str, parameters: Any, lr: float) -> Any:
    settings = {"lr": lr, "weight_decay": ADAMW["weight_decay"]}
    if variant.startswith("bitsandbytes"):
        import bitsandbytes

        kind = bitsandbytes.optim.AdamW8bit if variant.endswith("8bit") else bitsandbytes.optim.AdamW
        return kind(parameters, **settings)
    from torchao import optim

    kind = {"torchao-8bit": optim.AdamW8bit, "torchao-4bit": optim.AdamW4bit}[variant]
    return kind(parameters, **settings)


def imports(workload: Workload, variant: str) -> None:
    """The package; torchao compiles at its first step."""
    import torch

    _made(variant, [torch.zeros(1, requires_grad=True)], 1.0)


def prepare(workload: Workload, variant: str, folder: Path) -> None:
    """Only updates are measured: in a whole step they would be PyTorch with another optimizer."""
    if not workload.update:
        raise Cannot("only its update is measured.")


def load(workload: Workload, variant: str, folder: Path, threads: int) -> Checked:
    """A step of the optimizer."""
    import torch

    torch.set_num_threads(threads)
    module = workload.module()
    with np.load(folder.parent / "weights.npz") as arrays:
        module.load_state_dict({name: torch.from_numpy(arrays[name]) for name in arrays.files})
    return updates_only(workload, module, _made(variant, list(module.parameters()), workload.lr).step)
