"""The process that trains and times itself: `python contender.py NAME FOLDER`.

It reads the number of steps to take from a line of standard input, takes them, answers with a line of JSON, and waits
for the next. While it waits it does nothing, so several of these share a machine without disturbing each other.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from workloads import ADAMW, SGD, Batch, Workload, batches, weights

Step = Callable[[Batch], float]

BUNDLE = "bundle.edgeopt"


def edgeopt_step(workload: Workload, folder: Path) -> Step:
    """A step of the device runtime, which needs neither PyTorch nor the exporter."""
    from edgeopt_runtime import TrainingSession

    session = TrainingSession.load(folder / BUNDLE, threads=workload.threads)
    return lambda batch: session.step(batch)["loss"]


def torch_step(workload: Workload, implementation: str | None) -> Step:
    """An eager step of PyTorch.

    Args:
        workload: What to train.
        implementation: "foreach" or "fused"; None for the one that PyTorch takes by default.
    """
    import torch
    from torch.nn.functional import cross_entropy

    from models import build

    torch.set_num_threads(workload.threads)
    module = build(workload.model, weights(workload.model))
    # False would switch PyTorch's own choice off; None leaves it.
    foreach, fused = implementation == "foreach" or None, implementation == "fused" or None
    optimizer: torch.optim.Optimizer
    if workload.optimizer == "sgd":
        optimizer = torch.optim.SGD(
            module.parameters(), lr=SGD["lr"], momentum=SGD["momentum"], foreach=foreach, fused=fused
        )
    else:
        optimizer = torch.optim.AdamW(
            module.parameters(), lr=ADAMW["lr"], weight_decay=ADAMW["weight_decay"], foreach=foreach, fused=fused
        )

    def step(batch: Batch) -> float:
        images, labels = batch
        optimizer.zero_grad(set_to_none=True)
        loss = cross_entropy(module(torch.from_numpy(images)), torch.from_numpy(labels))
        loss.backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
        optimizer.step()
        return loss.item()

    return step


def peak_memory() -> float | None:
    """Largest resident memory of this process so far in MiB; None where the system does not say.

    Not `getrusage`: its maximum outlives exec, and would count what the parent process held.
    """
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), None)


def _import(name: str) -> None:
    """Load all modules that a step needs, so that memory is measured without them."""
    if name == "edgeopt":
        import edgeopt_runtime.session  # noqa: F401 # the package loads its modules lazily
    else:
        import torch

        # The first optimizer imports PyTorch's compiler, 155 MiB.
        torch.optim.SGD([torch.zeros(1)], lr=1.0)


def main(name: str, folder: Path) -> None:
    """Serve one contender until standard input ends."""
    workload = Workload.load(folder / "workload.json")
    _import(name)
    imported = peak_memory()
    family, _, implementation = name.partition(" ")
    step = edgeopt_step(workload, folder) if family == "edgeopt" else torch_step(workload, implementation or None)
    batch = batches(workload.model)
    print(json.dumps("ready"), flush=True)

    taken = 0
    for line in sys.stdin:
        ready = [batch(index) for index in range(taken, taken + int(line))]
        taken += len(ready)
        seconds, losses = [], []
        processor = time.process_time()
        for each in ready:
            start = time.perf_counter()
            losses.append(step(each))
            seconds.append(time.perf_counter() - start)
        processor = time.process_time() - processor
        peak = peak_memory()
        growth = None if peak is None or imported is None else peak - imported
        answer = {"seconds": seconds, "processor": processor, "losses": losses, "memory": growth}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
