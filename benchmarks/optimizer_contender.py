"""The process that updates and times itself: `python optimizer_contender.py NAME FOLDER`; see contender.py."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from contender import BUNDLE, peak_memory
from parameters import gradients, parameters
from workloads import ADAMW

# Takes a step, and returns the mean square of all parameters.
Contestant = tuple[Callable[[], object], Callable[[], float]]


def edgeopt_update(folder: Path, threads: int) -> Contestant:
    """The step of a bundle whose gradients are part of its state."""
    from edgeopt_runtime import TrainingSession

    session = TrainingSession.load(folder / BUNDLE, threads=threads)
    return lambda: session.step({}), lambda: _mean_square(list(session.parameters().values()))


def torch_update(name: str, threads: int, implementation: str) -> Contestant:
    """A step of PyTorch's AdamW; without an implementation the one that PyTorch takes by default."""
    import torch

    torch.set_num_threads(threads)
    tensors = [torch.nn.Parameter(torch.from_numpy(value)) for value in parameters(name).values()]
    for tensor, gradient in zip(tensors, gradients(name).values(), strict=True):
        tensor.grad = torch.from_numpy(gradient)
    foreach, fused = implementation == "foreach" or None, implementation == "fused" or None
    optimizer = torch.optim.AdamW(
        tensors, lr=ADAMW["lr"], weight_decay=ADAMW["weight_decay"], foreach=foreach, fused=fused
    )
    return optimizer.step, lambda: _mean_square([tensor.detach().numpy() for tensor in tensors])


def _mean_square(arrays: list[np.ndarray]) -> float:
    return float(sum(np.square(array, dtype=np.float64).sum() for array in arrays) / sum(a.size for a in arrays))


def main(name: str, folder: Path) -> None:
    """Serve one contender until standard input ends."""
    workload = json.loads((folder / "workload.json").read_text())
    family, _, implementation = name.partition(" ")
    if family == "edgeopt":
        step, check = edgeopt_update(folder, workload["threads"])
    else:
        step, check = torch_update(workload["parameters"], workload["threads"], implementation)
    before = peak_memory()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        seconds = []
        processor = time.process_time()
        for _ in range(int(line)):
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        processor = time.process_time() - processor
        peak = peak_memory()
        growth = None if peak is None or before is None else peak - before
        answer = {"seconds": seconds, "processor": processor, "losses": [check()], "memory": growth}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
