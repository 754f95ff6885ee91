"""What the machine can do at most, measured as if it were a peer: one float32 product, and one copy of memory."""

from __future__ import annotations

from pathlib import Path

from peers.base import Checked, Step
from workloads import Workload

PACKAGES = ("torch",)

# A product of square matrices large enough to run at full speed, small enough for a tenth of a second on one core.
SIDE = 1536
FLOPS = 2 * SIDE**3
# A copy moves as much as an update of the workload's parameters does, so that it finds the same caches, but at least
# what no core keeps to itself.
LEAST_BYTES = 64 << 20


def copied_bytes(update_bytes: int) -> int:
    """Bytes read and written by one copy, for a workload whose update moves so many."""
    return max(LEAST_BYTES, update_bytes) // 16 * 16


def imports(workload: Workload, variant: str) -> None:
    """PyTorch's library for products, MKL, is the fastest at hand."""
    import torch  # noqa: F401


def prepare(workload: Workload, variant: str, folder: Path) -> None:
    """Nothing to make."""


def load(workload: Workload, variant: str, folder: Path, threads: int) -> Step | Checked:
    """One product, or one copy."""
    import json

    import torch

    torch.set_num_threads(threads)
    if variant == "gemm":
        left, right, product = torch.rand(SIDE, SIDE), torch.rand(SIDE, SIDE), torch.empty(SIDE, SIDE)
        return Checked(lambda batch: torch.mm(left, right, out=product), float)
    facts = json.loads((folder.parent / "facts.json").read_text())
    source = torch.ones(copied_bytes(facts["update_bytes"]) // 8)
    target = torch.empty_like(source)
    return Checked(lambda batch: target.copy_(source), float)
