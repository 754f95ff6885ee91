"""From a torch.nn.Module to the two forward graphs that a training step is made of."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch.fx.traceback import preserve_node_meta

from edgeopt.errors import UnsupportedModelError
from edgeopt.training.forward import ForwardGraph, ForwardModel
from edgeopt_exporters.pytorch import attention, batch_norm, checkpoints, convolution, recurrent, stopped, written
from edgeopt_exporters.pytorch.calls import inference_as_no_grad, own_gradients_refused
from edgeopt_exporters.pytorch.captured import tidy
from edgeopt_exporters.pytorch.graph import stateless, to_forward_graph
from edgeopt_exporters.pytorch.hooks import refuse_gradient_hooks
from edgeopt_exporters.pytorch.inputs import Examples, bind_examples
from edgeopt_exporters.pytorch.module import Exported, in_mode
from edgeopt_exporters.pytorch.outputs import paired
from edgeopt_exporters.pytorch.preserved import preserved
from edgeopt_exporters.pytorch.trial import refuse_lazy, try_out
from edgeopt_runtime.manifest import Decision

__all__ = ["from_torch"]


def from_torch(
    module: torch.nn.Module,
    example_inputs: Any,
    *,
    dynamic_batch: bool = True,
    dynamic_shapes: Mapping[str, Mapping[int, str]] | None = None,
    output: str | None = None,
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
        output: The training output that is read by the loss. Where evaluation returns one tensor and training several,
            it says which of them that is.

    Raises:
        SignatureError: The examples do not fit the module; or it returns in training and in evaluation what cannot be
            told to be the same.
        UnsupportedModelError: torch cannot export the module; the message carries its reason. Or forward does what no
            graph can say: hooks on gradients, a backward pass, values kept in attributes.
    """
    refuse_gradient_hooks(module)
    refuse_lazy(module)
    examples = bind_examples(module, example_inputs, dynamic_batch, dynamic_shapes)
    # Before anything else runs: tracing may move them.
    parameters = {name: _to_numpy(tensor) for name, tensor in module.named_parameters()}
    buffers = {name: _to_numpy(tensor) for name, tensor in module.named_buffers()}

    def call() -> Any:
        # On copies, since forward may write into its inputs.
        copies = [tensor.detach().clone() for tensor in examples.tensors]
        return module(**dict(zip(examples.names, copies, strict=True)))

    trial = try_out(module, call)
    outputs = dict(zip((True, False), paired(trial, output), strict=True))
    graphs: dict[bool, ForwardGraph] = {}
    for training in (True, False):
        with preserved(module), in_mode(module, training=training):
            program = _export(Exported(module, examples.names), examples)
            graphs[training] = to_forward_graph(program, module, examples, outputs[training])
    written = graphs[False].updated_buffers, graphs[False].updated_parameters
    return ForwardModel(
        train=graphs[True],
        evaluate=stateless(graphs[False]),
        parameters=parameters,
        buffers=buffers,
        frozen=frozenset(name for name, tensor in module.named_parameters() if not tensor.requires_grad),
        provenance={"framework": f"torch {torch.__version__}", "model": type(module).__qualname__},
        decisions=(*trial.decisions, *_forgotten(written)),
    )


def _forgotten(written: tuple[Sequence[str], Sequence[str]]) -> Iterator[Decision]:
    for name in (*written[0], *written[1]):
        yield Decision(
            "frozen",
            name,
            f"In evaluation forward writes into {name!r}, which evaluate and predict use but do not keep.",
        )


def _to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    return np.array(tensor.detach().cpu().numpy())


def _export(module: Exported, examples: Examples) -> ir.Model:
    dynamic = tuple(dict.fromkeys(own, torch.export.Dim.DYNAMIC) for own in examples.dimensions)
    try:
        with _quiet():
            # Captured here, since torch.onnx would try several ways, one of which bakes in branches on values.
            with recurrent.WholeRecurrences(), stopped.own_backwards_refused(), _as_captured():
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
                    **stopped.TRANSLATIONS,
                    **checkpoints.TRANSLATIONS,
                    **written.TRANSLATIONS,
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
def _as_captured() -> Iterator[None]:
    """What torch.export would not see is said in a way that it does; annotations of nodes are kept."""
    with contextlib.ExitStack() as stack:
        # Whatever the caller has switched off, training needs gradients.
        for context in (torch.inference_mode(False), torch.enable_grad(), preserve_node_meta()):
            stack.enter_context(context)
        for context in (inference_as_no_grad(), own_gradients_refused(), checkpoints.checkpoints_called()):
            stack.enter_context(context)
        yield


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
