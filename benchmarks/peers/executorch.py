"""ExecuTorch's training extension with the portable kernels of its wheel. It has no AdamW: PyTorch's steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from peers.base import Cannot, Step
from workloads import ADAMW, Batch, Workload

PACKAGES = ("executorch", "torch")

PROGRAM = "step.pte"


def imports(workload: Workload, variant: str) -> None:
    """The extension, and PyTorch's optimizer with what it imports late."""
    import torch
    from executorch.extension.training import _load_for_executorch_for_training  # noqa: F401

    torch.optim.AdamW([torch.zeros(1)], lr=1.0)


def prepare(workload: Workload, variant: str, folder: Path) -> int:
    """Export forward and backward pass; BatchNorm in training mode is written out, for which it has no kernel."""
    if workload.update:
        raise Cannot("ExecuTorch has no AdamW.")
    import torch
    from executorch.exir import EdgeCompileConfig, to_edge
    from torch.export import export
    from torch.export.experimental import _export_forward_backward
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from workloads.onnx_files import Loss, write_out_norms

    module = workload.module()
    with np.load(folder.parent / "weights.npz") as arrays:
        module.load_state_dict({name: torch.from_numpy(arrays[name]) for name in arrays.files})
    write_out_norms(module)
    example = tuple(torch.from_numpy(array) for array in workload.batch(0))
    # The kernels for fused attention have no backward pass here.
    with sdpa_kernel(SDPBackend.MATH):
        program = _export_forward_backward(export(Loss(module), example, strict=True))
    edge = to_edge(program, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    (folder / PROGRAM).write_bytes(edge.to_executorch().buffer)
    return (folder / PROGRAM).stat().st_size


def load(workload: Workload, variant: str, folder: Path, threads: int) -> Step:
    """Gradients from the program, and AdamW on tensors that share its weights' memory."""
    import torch
    from executorch.extension.training import _load_for_executorch_for_training

    torch.set_num_threads(threads)
    program = _load_for_executorch_for_training(str(folder / PROGRAM))
    optimizers: list[torch.optim.Optimizer] = []

    def step(batch: Batch) -> float:
        inputs, labels = batch
        loss = program.forward_backward("forward", (torch.from_numpy(inputs), torch.from_numpy(labels)))[0]
        gradients = program.named_gradients()
        parameters = {name: value for name, value in program.named_parameters().items() if name in gradients}
        if not optimizers:  # the parameters have no names before the first pass
            decay = ADAMW["weight_decay"]
            optimizers.append(torch.optim.AdamW(list(parameters.values()), lr=workload.lr, weight_decay=decay))
        for name, parameter in parameters.items():
            parameter.grad = gradients[name]
        optimizers[0].step()
        return float(loss.item())

    return step
