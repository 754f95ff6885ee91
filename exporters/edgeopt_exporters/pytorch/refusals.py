"""What is refused before anything is traced, because no graph can hold it or ONNX Runtime cannot compute with it."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from edgeopt.errors import UnsupportedModelError
from edgeopt_exporters.pytorch.explaining import place_in
from edgeopt_runtime.dtypes import DTYPES

__all__ = ["refuse_bfloat16", "refuse_inputs", "refuse_module"]

_HELD = frozenset(getattr(torch, name) for name in DTYPES)
_SHOWN = 3

# What ONNX Runtime has kernels for on a CPU: they move values, or change their type.
_MOVES_BFLOAT16 = frozenset(
    {"Cast", "Concat", "Constant", "Flatten", "Gather", "Identity", "Reshape", "Shape", "Slice", "Squeeze", "Transpose"}
    | {"StopGradient", "Unsqueeze"}
)


def refuse_module(module: torch.nn.Module) -> None:
    """Refuse modules without code, without values, or with values of a kind that a bundle does not have.

    Raises:
        UnsupportedModelError: It names the parts or tensors, and says what to do instead.
    """
    _refuse_parts(module)
    kind = type(module).__name__
    parameters = dict(module.named_parameters())
    for name, tensor in {**parameters, **dict(module.named_buffers())}.items():
        what = f"{kind}: the {'parameter' if name in parameters else 'buffer'} {name!r}"
        if isinstance(tensor, (torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer)):
            raise UnsupportedModelError(
                f"{what} has no shape yet (a lazy module). Call the module once on an example before exporting it."
            )
        if tensor.is_meta:
            raise UnsupportedModelError(
                f"{what} is on the meta device and has no values. Load or initialise the weights first, with "
                "`to_empty(device='cpu')` and `load_state_dict`."
            )
        if (reason := _unheld(tensor)) is not None:
            raise UnsupportedModelError(f"{what} {reason}")
    computed = [name for name, p in parameters.items() if p.dtype == torch.bfloat16 and p.requires_grad]
    if computed:
        raise UnsupportedModelError(
            f"{kind}: {_some(computed)} bfloat16, which ONNX Runtime stores, but does not compute with on a CPU. "
            "Convert the module with `model.float()`. Frozen weights (requires_grad=False) may stay bfloat16 where "
            "forward converts them to float32."
        )


def refuse_inputs(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> None:
    """Refuse examples that a graph has no input for.

    Raises:
        UnsupportedModelError: It names the input, and says what to do instead.
    """
    for name, tensor in zip(names, tensors, strict=True):
        what = f"The example for input {name!r}"
        if tensor.is_nested:
            raise UnsupportedModelError(f"{what} is a nested tensor. Pad it, and give a mask beside it.")
        if tensor.is_meta:
            raise UnsupportedModelError(f"{what} is on the meta device and has no values; give one on the CPU.")
        if (reason := _unheld(tensor)) is not None:
            raise UnsupportedModelError(f"{what} {reason}")
        if tensor.dtype == torch.bfloat16:
            raise UnsupportedModelError(
                f"{what} is bfloat16, which ONNX Runtime does not compute with on a CPU. Give a float32 tensor, and "
                "convert the module with `model.float()`."
            )


def refuse_bfloat16(graph: ir.Graph) -> None:
    """Refuse a graph that computes in bfloat16, as under `torch.autocast`.

    Raises:
        UnsupportedModelError: It names the operator and its module.
    """
    for node in ir.traversal.RecursiveGraphIterator(graph):
        types = {value.dtype for value in (*node.inputs, *node.outputs) if value is not None}
        if ir.DataType.BFLOAT16 in types and node.op_type not in _MOVES_BFLOAT16:
            where = place_in(node.metadata_props.get("pkg.torch.onnx.stack_trace", "")) or repr(node.name)
            raise UnsupportedModelError(
                f"forward computes in bfloat16 ({node.op_type} in {where}), which ONNX Runtime cannot on a CPU. "
                "Convert the module with `model.float()`, and switch off `torch.autocast` in forward for the export "
                "(`enabled=False`), or let it use float16."
            )


def _refuse_parts(module: torch.nn.Module) -> None:
    for path, part in module.named_modules():
        where = f"{type(module).__name__}: the part {path!r}" if path else "The module"
        kind = type(part)
        if isinstance(part, torch.jit.ScriptModule):
            raise UnsupportedModelError(
                f"{where} is a ScriptModule ({kind.__name__}) of torch.jit.trace or torch.jit.script: its code is "
                "gone. Export the module that it was made of; `load_state_dict(scripted.state_dict())` gives it the "
                "weights."
            )
        if kind.__module__.startswith(("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")):
            raise UnsupportedModelError(
                f"{where} is a quantized {kind.__name__}, whose integer weights have no gradient. Export the module as "
                "it was before the conversion (`convert`, `quantize_dynamic`), and quantize after training."
            )


def _unheld(tensor: torch.Tensor) -> str | None:
    """Why a bundle cannot hold a tensor."""
    layout, dtype = (str(what).removeprefix("torch.") for what in (tensor.layout, tensor.dtype))
    if tensor.layout != torch.strided:
        return f"is sparse ({layout}), which ONNX Runtime has no operators for. Convert it with `to_dense()`."
    if tensor.is_complex():
        return (
            f"is complex ({dtype}), a type that ONNX Runtime does not have. Keep real and imaginary part in a real "
            "tensor with a last axis of 2 (`torch.view_as_real`), and call `torch.view_as_complex` in forward."
        )
    if tensor.is_quantized:
        return f"is quantized ({dtype}), and integers have no gradient. Give its values with `dequantize()`."
    if tensor.dtype not in _HELD:
        return f"is {dtype}; a bundle holds {', '.join(DTYPES)}. Convert it with `to(…)`."
    return None


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"the parameters {shown}{rest} are" if len(names) > 1 else f"the parameter {shown} is"
