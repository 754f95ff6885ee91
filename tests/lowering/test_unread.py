from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from edgeopt.lowering import lower
from edgeopt.tracing import Tracer, new_graph, new_model


@pytest.mark.parametrize(
    ("sizes", "how", "read", "expected"),
    [
        ([1, 3, 3], {"axis": 1}, 2, slice(4, 7)),
        ([1, 3, 3], {"axis": -1}, 0, slice(0, 1)),
        (None, {"axis": 1, "num_outputs": 3}, 1, slice(3, 6)),
        (None, {"axis": 1, "num_outputs": 3}, 2, slice(6, 7)),
    ],
)
def test_a_split_without_readers_for_all_pieces_takes_slices(
    sizes: list[int] | None, how: dict[str, Any], read: int, expected: slice
) -> None:
    """From its second run on, ONNX Runtime 1.17 gives a piece that nobody reads the memory of another tensor."""
    tracer = Tracer(new_graph("split"))
    x = tracer.input("x", np.float32, ("rows", 7))
    count = len(sizes) if sizes else how["num_outputs"]
    pieces = tracer.emit("Split", x, sizes, outputs=count, **how)
    tracer.output(pieces[read], "y")
    lower(tracer)
    assert [node.op_type for node in tracer.graph if node.op_type != "Constant"] == ["Slice"]
    model = ir.serde.serialize_model(new_model(tracer.graph)).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    value = np.arange(14, dtype=np.float32).reshape(2, 7)
    np.testing.assert_array_equal(session.run(None, {"x": value})[0], value[:, expected])


def test_a_split_that_is_read_in_full_stays() -> None:
    tracer = Tracer(new_graph("split"))
    x = tracer.input("x", np.float32, (2, 6))
    for position, piece in enumerate(tracer.emit("Split", x, axis=1, num_outputs=2, outputs=2)):
        tracer.output(piece, f"y_{position}")
    lower(tracer)
    assert [node.op_type for node in tracer.graph] == ["Split"]
