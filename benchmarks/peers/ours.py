"""edgeopt: the bundle's step on stock ONNX Runtime ("plain"), or with the kernels of edgeopt-native ("native")."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from peers.base import Cannot, Checked, Step
from workloads import ADAMW, Batch, Workload
from workloads.updates import gradients, mean_square

if TYPE_CHECKING:
    from edgeopt import Bundle
    from edgeopt_runtime.kernels import KernelChoice

PACKAGES = ("edgeopt", "onnxruntime", "numpy")

BUNDLE = "bundle.edgeopt"


def imports(workload: Workload, variant: str) -> None:
    """Only the device runtime: neither PyTorch nor the exporter."""
    import edgeopt_runtime.session  # noqa: F401 # the package loads its modules lazily


def prepare(workload: Workload, variant: str, folder: Path) -> int:
    """Export the module; both variants run the same file."""
    with np.load(folder.parent / "weights.npz") as arrays:
        weights = {name: arrays[name] for name in arrays.files}
    narrow = variant.endswith("8bit")
    if narrow and not workload.update:
        raise Cannot("only its update is measured.")
    if workload.update:
        export_update(workload, weights, "int8" if narrow else None).save(folder / BUNDLE)
    else:
        export_step(workload, weights).save(folder / BUNDLE)
    return (folder / BUNDLE).stat().st_size


def export_step(workload: Workload, weights: Mapping[str, Any]) -> Bundle:
    """The training step in the manner of the README."""
    import torch

    import edgeopt

    module = workload.module()
    module.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    inputs, _ = workload.batch(0)
    return edgeopt.export(
        module,
        torch.from_numpy(inputs),
        loss=edgeopt.losses.CrossEntropy(class_axis=-1),
        optimizer=edgeopt.optimizers.AdamW(lr=workload.lr, weight_decay=ADAMW["weight_decay"]),
        trainable=workload.trainable,
        verbose=False,
    )


def export_update(workload: Workload, weights: Mapping[str, Any], state: str | None) -> Bundle:
    """A bundle of one graph: the update, with gradients that lie in the state; moments in a format, if one is named."""
    from edgeopt import Bundle
    from edgeopt.optimizers import AdamW, Optimizer, QuantizedState, as_groups
    from edgeopt.tracing import IR_VERSION, OPSET
    from edgeopt.training.graphs.builder import GraphBuilder
    from edgeopt.training.plan import group_numbers
    from edgeopt.training.updating.groups import resolve
    from edgeopt.training.updating.state import initial_state
    from edgeopt.training.updating.update import update_groups
    from edgeopt_runtime.manifest import Manifest

    rule: Optimizer = AdamW(lr=workload.lr, weight_decay=ADAMW["weight_decay"])
    groups = resolve(as_groups(rule if state is None else QuantizedState(rule, state)), weights)
    buffers = {f"gradient.{name}": value for name, value in gradients(workload.name).items()}
    values = initial_state(weights, buffers, groups, seed=0)
    builder = GraphBuilder("step", values)
    update_groups(builder, groups, {name: builder.state(f"gradient.{name}") for name in weights}, {})
    graph = builder.finish()
    manifest = Manifest(
        opset=OPSET,
        ir_version=IR_VERSION,
        minimum_onnxruntime="1.17.0",
        tensors=tuple(values.tensors.values()),
        accumulators=tuple(values.accumulators.values()),
        joined=tuple(values.joined.values()),
        hyperparameters=tuple(group_numbers(groups)),
        inputs=(),
        outputs=(),
        signatures={"step": graph.signature},
    )
    return Bundle(manifest, {graph.signature.file: graph.model}, values.values)


def load(workload: Workload, variant: str, folder: Path, threads: int) -> Step | Checked:
    """A step of the device runtime."""
    from edgeopt_runtime import TrainingSession

    kernels: KernelChoice = "plain" if variant.startswith("plain") else "auto"
    session = TrainingSession.load(folder / BUNDLE, threads=threads, kernels=kernels)
    if workload.update:
        return Checked(lambda batch: session.step({}), lambda: mean_square(session.parameters()))

    def step(batch: Batch) -> float:
        loss: float = session.step(batch)["loss"]
        return loss

    return step
