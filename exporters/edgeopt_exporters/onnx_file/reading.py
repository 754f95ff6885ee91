"""An ONNX file, read and found to be whole."""

from __future__ import annotations

import os
from typing import TypeAlias

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # no stubs

from edgeopt.canonical.copies import copied, deserialized
from edgeopt.errors import UnsupportedModelError

__all__ = ["OnnxModel", "read"]

OnnxModel: TypeAlias = "onnx.ModelProto | ir.Model | str | os.PathLike[str]"


def read(model: OnnxModel) -> ir.Model:
    """A model of its own, with its weights in memory.

    Raises:
        UnsupportedModelError: It cannot be read, or is none.
    """
    if isinstance(model, ir.Model):
        return copied(model)
    if isinstance(model, onnx.ModelProto):
        return deserialized(model)
    try:
        return ir.load(model)
    except (DecodeError, OSError, ValueError) as error:
        raise UnsupportedModelError(f"{os.fspath(model)} cannot be read as an ONNX file: {error}") from error
