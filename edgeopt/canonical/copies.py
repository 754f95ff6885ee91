"""Models of their own, to be changed."""

from __future__ import annotations

import onnx
import onnx_ir as ir

__all__ = ["copied", "deserialized"]


def copied(model: ir.Model) -> ir.Model:
    """The same model again; its floating-point attributes keep the digits of a double, which a file would not hold."""
    copy = ir.serde.deserialize_model(ir.serde.serialize_model(model))
    originals = ir.traversal.RecursiveGraphIterator(model.graph)
    for original, node in zip(originals, ir.traversal.RecursiveGraphIterator(copy.graph), strict=True):
        for name, attribute in original.attributes.items():
            if attribute.type in (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS):
                node.attributes[name] = attribute
    return copy


def deserialized(proto: onnx.ModelProto) -> ir.Model:
    """A proto as a model that shares nothing with it: renaming a tensor would reach through to the proto."""
    own = onnx.ModelProto()
    own.CopyFrom(proto)
    return ir.serde.deserialize_model(own)
