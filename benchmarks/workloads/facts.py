"""What all peers start from, and what a step costs: `python workloads/facts.py WORKLOAD FOLDER` writes two files.

`weights.npz` holds the module's state by name. `facts.json` counts its parameters, the floating-point operations of
forward and backward pass, and the bytes that AdamW must move.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from workloads import WORKLOADS, Workload

# AdamW reads parameter, gradient and two moments and writes all but the gradient, four bytes each.
BYTES_PER_PARAMETER = 28


def facts(workload: Workload, module: Any) -> dict[str, int]:
    """Counts of a module."""
    import torch
    from torch.nn.functional import cross_entropy
    from torch.utils.flop_counter import FlopCounterMode

    sizes = {name: parameter.numel() for name, parameter in module.named_parameters()}
    trained = sum(size for name, size in sizes.items() if workload.trains(name))
    counts = {"parameters": sum(sizes.values()), "trained": trained, "update_bytes": BYTES_PER_PARAMETER * trained}
    if workload.update:
        return counts | {"flops": 0}
    inputs, labels = workload.batch(0)
    with FlopCounterMode(display=False) as counter:
        loss = cross_entropy(module(torch.from_numpy(inputs)).flatten(0, -2), torch.from_numpy(labels).flatten())
        loss.backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
    return counts | {"flops": counter.get_total_flops() + workload.uncounted_flops}


def main(name: str, place: str) -> None:
    """Write the facts of one workload."""
    workload, folder = WORKLOADS[name], Path(place)
    folder.mkdir(parents=True, exist_ok=True)
    module = workload.module()
    state = {key: value.numpy().copy() for key, value in module.state_dict().items()}
    np.savez(folder / "weights.npz", **state)
    (folder / "facts.json").write_text(json.dumps(facts(workload, module)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
