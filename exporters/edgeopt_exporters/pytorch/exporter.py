"""From a torch.nn.Module to the two forward graphs that a training step is made of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import torch

from edgeopt.canonical.copies import copied
from edgeopt.errors import UnsupportedModelError
from edgeopt.training.forward import ForwardGraph, ForwardModel
from edgeopt_exporters.phases import phase
from edgeopt_exporters.pytorch import checkpoints, written
from edgeopt_exporters.pytorch.calling import unwrapped
from edgeopt_exporters.pytorch.capture import Program, are_one, capture
from edgeopt_exporters.pytorch.captured import tidy
from edgeopt_exporters.pytorch.dimensions import distinguished
from edgeopt_exporters.pytorch.explaining import explain
from edgeopt_exporters.pytorch.graph import stateless, to_forward_graph
from edgeopt_exporters.pytorch.hooks import refuse_gradient_hooks
from edgeopt_exporters.pytorch.inputs import Examples, bind_examples
from edgeopt_exporters.pytorch.module import Exported, in_mode
from edgeopt_exporters.pytorch.outputs import paired
from edgeopt_exporters.pytorch.preserved import preserved
from edgeopt_exporters.pytorch.quiet import quiet
from edgeopt_exporters.pytorch.reference import ModuleReference
from edgeopt_exporters.pytorch.refusals import refuse_module
from edgeopt_exporters.pytorch.torchlib import read_once
from edgeopt_exporters.pytorch.translations import TRANSLATIONS
from edgeopt_exporters.pytorch.translations.numbers import exact_casts
from edgeopt_exporters.pytorch.trial import try_out
from edgeopt_runtime.manifest import Decision

__all__ = ["from_torch"]


def from_torch(
    module: torch.nn.Module,
    example_inputs: Any,
    *,
    dynamic_batch: bool = True,
    dynamic_shapes: Any = None,
    output: str | None = None,
) -> tuple[ForwardModel, ModuleReference]:
    """Export a module twice, for training and for evaluation, and return what to compare it with besides.

    The module is left as it was. Parameters and buffers keep the names of `named_parameters` and `named_buffers`; a
    parameter that the module uses under several names (an embedding tied to the output layer) stays one tensor.

    Args:
        module: The model. In evaluation mode as a whole, it is exported for training with `train()`; in training mode,
            its parts keep the modes they are in.
        example_inputs: A tensor, a tuple of arguments, or a mapping by the names of `forward`'s parameters. Lists,
            tuples and dicts among them hold inputs `name_0`, `name.key`; what is no tensor stays as it is.
        dynamic_batch: Whether axis 0 of the first input, and of those that have as much there, is the symbolic
            dimension "batch". Where the module allows one size only, it stays fixed.
        dynamic_shapes: More symbolic dimensions, `{"tokens": {1: "sequence"}}`, see `named_dimensions`.
        output: The training output that is read by the loss. Where evaluation returns one tensor and training several,
            it says which of them that is.

    Raises:
        SignatureError: The examples do not fit the module; or it returns in training and in evaluation what cannot be
            told to be the same.
        UnsupportedModelError: torch cannot export the module; the message carries its reason. Or forward does what no
            graph can say: hooks on gradients, a backward pass, values kept in attributes.
    """
    module = unwrapped(module)
    refuse_module(module)
    refuse_gradient_hooks(module)
    examples = bind_examples(module, example_inputs, dynamic_batch, dynamic_shapes)
    # Before anything else runs: tracing may move them.
    parameters = {name: _to_numpy(tensor) for name, tensor in module.named_parameters()}
    buffers = {name: _to_numpy(tensor) for name, tensor in module.named_buffers()}

    def call() -> Any:
        # On copies, since forward may write into its inputs.
        return examples.call(module, [tensor.detach().clone() for tensor in examples.tensors])

    trial = try_out(module, call)
    outputs = dict(zip((True, False), paired(trial, output), strict=True))
    programs, examples = _capture(module, examples)
    graphs: dict[bool, ForwardGraph] = {}
    # A module without dropout and the like is one program. To translate it takes most of the time.
    once = outputs[True] == outputs[False] and are_one(programs[True], programs[False])
    for training in (True,) if once else (True, False):
        with preserved(module), in_mode(module, training=training):
            phase(f"torch translates the module for {'training' if training else 'evaluation'}")
            model = _translate(module, programs[training], examples)
            graphs[training] = to_forward_graph(model, module, examples, outputs[training])
    if once:
        graphs[False] = replace(graphs[True], model=copied(graphs[True].model))
    forgotten = (*graphs[False].updated_buffers, *graphs[False].updated_parameters)
    forward = ForwardModel(
        train=graphs[True],
        evaluate=stateless(graphs[False]),
        parameters=parameters,
        buffers=buffers,
        frozen=frozenset(name for name, tensor in module.named_parameters() if not tensor.requires_grad),
        provenance={"framework": f"torch {torch.__version__}", "model": type(module).__qualname__},
        decisions=(*trial.decisions, *examples.decisions, *map(_forgotten, forgotten)),
        aliases=_aliases(module),
    )
    return forward, ModuleReference(module, examples, outputs)


def _aliases(module: torch.nn.Module) -> dict[str, str]:
    """The names of parameters and buffers beside those that `named_parameters` and `named_buffers` give."""
    own = {id(tensor): name for named in (module.named_parameters(), module.named_buffers()) for name, tensor in named}
    every = (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))
    return {name: own[id(tensor)] for named in every for name, tensor in named if own[id(tensor)] != name}


def _forgotten(name: str) -> Decision:
    text = f"In evaluation forward writes into {name!r}, which evaluate and predict use but do not keep."
    return Decision("frozen", name, text)


def _to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        # numpy has no such type, and torch does not know that of ml_dtypes.
        return np.array(tensor.contiguous().view(torch.int16).numpy()).view(ml_dtypes.bfloat16)
    return np.array(tensor.numpy())


def _capture(module: torch.nn.Module, examples: Examples) -> tuple[dict[bool, Program], Examples]:
    """Both modes, with the same dimensions symbolic."""
    phase("torch captures the module")
    train, settled = _capture_mode(module, examples, training=True)
    evaluate, final = _capture_mode(module, settled, training=False)
    if final.dimensions != settled.dimensions:
        train, final = _capture_mode(module, final, training=True)
    programs = {True: train, False: evaluate}
    return programs, distinguished(final, tuple(programs.values()))


def _capture_mode(module: torch.nn.Module, examples: Examples, *, training: bool) -> tuple[Program, Examples]:
    with preserved(module), in_mode(module, training=training):
        return capture(Exported(module, examples.call), examples)


def _translate(module: torch.nn.Module, captured: Program, examples: Examples) -> ir.Model:
    try:
        with quiet(), exact_casts(), read_once():
            tidy(captured)
            program = torch.onnx.export(
                captured,
                examples.tensors,
                dynamo=True,
                # The optimizer merges equal initializers and folds BatchNorm away: both would break training.
                optimize=False,
                opset_version=20,
                custom_translation_table={**TRANSLATIONS, **checkpoints.TRANSLATIONS, **written.TRANSLATIONS},
                verbose=False,
            )
    except Exception as error:  # torch raises whatever the traced code raises, wrapped or not
        raise UnsupportedModelError(explain(module, error)) from error
    if program is None:
        raise UnsupportedModelError(f"torch.onnx.export returned nothing for {type(module).__name__}.")
    return program.model
