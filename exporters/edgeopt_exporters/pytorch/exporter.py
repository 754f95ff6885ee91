"""From a torch.nn.Module to the two forward graphs that a training step is made of."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from edgeopt.errors import UnsupportedModelError
from edgeopt.training.forward import ForwardGraph, ForwardModel
from edgeopt_exporters.pytorch import attention, batch_norm, convolution, recurrent, singular_points, stopped
from edgeopt_exporters.pytorch.captured import tidy
from edgeopt_exporters.pytorch.graph import to_forward_graph
from edgeopt_exporters.pytorch.inputs import Examples, bind_examples
from edgeopt_exporters.pytorch.module import Exported, in_mode, output_names

__all__ = ["from_torch"]


def from_torch(
    module: torch.nn.Module,
    example_inputs: Any,
    *,
    dynamic_batch: bool = True,
    dynamic_shapes: Mapping[str, Mapping[int, str]] | None = None,
) -> ForwardModel:
    """Export a module twice, for training and for evaluation.

    The module is left as it was. Parameters and buffers keep the names of `named_parameters` and `named_buffers`; a
    parameter that the module uses under several names (an embedding tied to the output layer) stays one tensor.

    Args:
        module: The model. In evaluation mode as a whole, it is exported for training with `train()`; in training mode,
            its parts keep the modes they are in.
        example_inputs: A tensor, a tuple of tensors, or a mapping by the names of `forward`'s parameters.
        dynamic_batch: Whether axis 0 of every input is the symbolic dimension "batch".
        dynamic_shapes: More symbolic dimensions, `{"tokens": {1: "sequence"}}`.

    Raises:
        SignatureError: The examples do not fit the module.
        UnsupportedModelError: torch cannot export the module; the message carries its reason.
    """
    examples = bind_examples(module, example_inputs, dynamic_batch, dynamic_shapes)
    outputs = output_names(module, examples.names, examples.tensors)
    graphs: dict[bool, ForwardGraph] = {}
    for training in (True, False):
        with in_mode(module, training=training):
            program = _export(Exported(module, examples.names, with_buffers=training), examples)
        graphs[training] = to_forward_graph(program, module, examples, outputs, training)
    return ForwardModel(
        train=graphs[True],
        evaluate=graphs[False],
        parameters={name: _to_numpy(tensor) for name, tensor in module.named_parameters()},
        buffers={name: _to_numpy(tensor) for name, tensor in module.named_buffers()},
        frozen=frozenset(name for name, tensor in module.named_parameters() if not tensor.requires_grad),
        provenance={"framework": f"torch {torch.__version__}", "model": type(module).__qualname__},
    )


def _to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    return np.array(tensor.detach().cpu().numpy())


def _export(module: Exported, examples: Examples) -> ir.Model:
    dynamic = tuple(dict.fromkeys(own, torch.export.Dim.DYNAMIC) for own in examples.dimensions)
    try:
        with _quiet():
            # Captured here, since torch.onnx would try several ways, one of which bakes in branches on values.
            with recurrent.WholeRecurrences(), stopped.own_backwards_refused():
                captured = torch.export.export(module, examples.tensors, dynamic_shapes=(dynamic,), strict=False)
            tidy(captured)
            program = torch.onnx.export(
                captured,
                examples.tensors,
                dynamo=True,
                # The optimizer merges equal initializers and folds BatchNorm away: both would break training.
                optimize=False,
                opset_version=20,
                custom_translation_table={
                    **attention.TRANSLATIONS,
                    **batch_norm.TRANSLATIONS,
                    **convolution.TRANSLATIONS,
                    **recurrent.TRANSLATIONS,
                    **singular_points.TRANSLATIONS,
                    **stopped.TRANSLATIONS,
                },
                verbose=False,
            )
    except Exception as error:  # torch raises whatever the traced code raises, wrapped or not
        raise UnsupportedModelError(_explain(module.module, error)) from error
    if program is None:
        raise UnsupportedModelError(f"torch.onnx.export returned nothing for {type(module.module).__name__}.")
    return program.model


def _explain(module: torch.nn.Module, error: BaseException) -> str:
    causes = []
    cause: BaseException | None = error
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__
    # What this package refuses itself, from inside torch, says all there is to say.
    refusal = next((cause for cause in causes if isinstance(cause, UnsupportedModelError)), None)
    if refusal is not None:
        return f"{type(module).__name__}: {refusal}"
    root = str(causes[-1]).strip().split("\n\n")[0]
    return (
        f"torch could not export {type(module).__name__}: {type(causes[-1]).__name__}: {root}\n"
        "If a dimension cannot be symbolic, pass dynamic_batch=False or leave it out of dynamic_shapes; "
        "code that branches on tensor values has to be rewritten."
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """torch reports its progress and unrelated deprecations; what matters arrives as an exception."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
