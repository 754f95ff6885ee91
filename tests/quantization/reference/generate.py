"""Run bitsandbytes and torchao, and write what our formats are compared with.

In an environment with edgeopt[torch], bitsandbytes and torchao (both without what they depend on), from the root of the
repository::

    TORCHDYNAMO_DISABLE=1 python -m tests.quantization.reference.generate
"""

from __future__ import annotations

import importlib
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.quantization.reference.cases import CASES, Case
from tests.quantization.reference.inputs import SAMPLE, STEPS, array, gradients, start

HERE = Path(__file__).parent

Array = np.ndarray[Any, Any]


def codes() -> dict[str, Array]:
    """What bitsandbytes makes of arrays: by its kernel for the CPU, and by its own plain form for other devices."""
    functional = importlib.import_module("bitsandbytes.functional")
    quantize = torch.ops.bitsandbytes.quantize_blockwise.default
    found: dict[str, Array] = {}
    for kind in ("normal", "wide"):
        for signed in (True, False):
            values = torch.from_numpy(array(kind) if signed else np.abs(array(kind)))
            table, name = functional.create_dynamic_map(signed=signed), f"{kind}.{'signed' if signed else 'unsigned'}"
            kernel, absmax = quantize(values, table, 256)
            plain, _ = quantize._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, values, table, 256)
            found |= {
                f"{name}.kernel": kernel.numpy(),
                f"{name}.plain": plain.numpy(),
                f"{name}.absmax": absmax.numpy(),
            }
        packed, state = functional.quantize_4bit(torch.from_numpy(array(kind)), blocksize=64, quant_type="nf4")
        found |= {f"{kind}.nf4": packed.numpy().reshape(-1), f"{kind}.nf4.absmax": state.absmax.numpy()}
    return found


def trajectory(case: Case) -> dict[str, Array]:
    """The state after the first of `STEPS`, and a sample of the parameter after each."""
    module, _, name = case.reference.rpartition(".")
    parameter = torch.nn.Parameter(torch.from_numpy(start()))
    optimizer = getattr(importlib.import_module(module), name)([parameter], **case.theirs)
    found: dict[str, Array] = {}
    for step, gradient in enumerate(gradients(), 1):
        parameter.grad = torch.from_numpy(gradient)
        optimizer.step()
        if step in STEPS:
            found[f"param.{step}"] = parameter.detach().numpy().reshape(-1)[::SAMPLE].copy()
        if step == STEPS[0]:
            found |= {f"state.{key}": value for key, value in plain(optimizer.state[parameter]).items()}
    return found


def plain(state: dict[str, Any]) -> dict[str, Array]:
    """An entry of a state as arrays; of a tensor of torchao its parts."""
    found: dict[str, Array] = {}
    for key, value in state.items():
        if hasattr(value, "codes"):
            codes = value.codes if value.codes.dtype == torch.uint8 else value.codes.view(torch.uint8)
            found |= {f"{key}.codes": codes.numpy().copy(), f"{key}.scale": value.scale.numpy().copy()}
        elif not key.startswith("qmap"):
            found[key] = np.array(value)
    return found


def main() -> None:
    """Write the goldens of each package."""
    warnings.simplefilter("ignore")
    for package in ("bitsandbytes", "torchao"):
        cases = [case for case in CASES if case.reference.startswith(package)]
        arrays = {f"{case.reference}/{key}": each for case in cases for key, each in trajectory(case).items()}
        arrays |= codes() if package == "bitsandbytes" else {}
        arrays["version"] = np.array(version(package))
        np.savez_compressed(HERE / f"{package}.npz", **arrays)  # type: ignore[arg-type]  # arrays by name


if __name__ == "__main__":
    main()
