"""The element types a bundle may hold, and what numpy, safetensors and ONNX call them.

numpy has no bfloat16: such tensors travel as ``uint16`` arrays that hold the same bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["DTYPES", "DType"]


class DType(NamedTuple):
    """One element type.

    Attributes:
        name: The name in the manifest.
        storage: The numpy type of arrays that hold it.
        safetensors: Its code in a safetensors header.
        onnx: Its number in ``onnx.TensorProto.DataType``.
        ort: Its name in ONNX Runtime's ``tensor(...)`` strings.
    """

    name: str
    storage: np.dtype[Any]
    safetensors: str
    onnx: int
    ort: str


DTYPES: dict[str, DType] = {
    row.name: row
    for row in (
        DType("float32", np.dtype(np.float32), "F32", 1, "float"),
        DType("float64", np.dtype(np.float64), "F64", 11, "double"),
        DType("float16", np.dtype(np.float16), "F16", 10, "float16"),
        DType("bfloat16", np.dtype(np.uint16), "BF16", 16, "bfloat16"),
        DType("int64", np.dtype(np.int64), "I64", 7, "int64"),
        DType("int32", np.dtype(np.int32), "I32", 6, "int32"),
        DType("int16", np.dtype(np.int16), "I16", 5, "int16"),
        DType("int8", np.dtype(np.int8), "I8", 3, "int8"),
        DType("uint8", np.dtype(np.uint8), "U8", 2, "uint8"),
        DType("bool", np.dtype(np.bool_), "BOOL", 9, "bool"),
    )
}
