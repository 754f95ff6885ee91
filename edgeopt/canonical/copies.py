"""Models of their own, to be changed."""

from __future__ import annotations

import onnx
import onnx_ir as ir

__all__ = ["copied", "deserialized"]


def copied(model: ir.Model) -> ir.Model:
    """The same model again."""
    return ir.serde.deserialize_model(ir.serde.serialize_model(model))


def deserialized(proto: onnx.ModelProto) -> ir.Model:
    """A proto as a model that shares nothing with it: renaming a tensor would reach through to the proto."""
    own = onnx.ModelProto()
    own.CopyFrom(proto)
    return ir.serde.deserialize_model(own)
