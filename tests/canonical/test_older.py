"""Every older form of an operator against what ONNX Runtime makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import onnx.defs
import onnx.parser
import pytest

from edgeopt.canonical import canonicalize
from edgeopt.canonical.registry import ADAPTERS
from edgeopt.errors import UnsupportedModelError

IMAGE = "float[1, 2, 3, 4] x"
# Opset, inputs, outputs, initializers, nodes.
ROWS = [
    (7, "float[n, 3] x", "float[n, 3] y", "", "y = Clip<min = -0.5, max = 0.5>(x)"),
    (10, "float[n, 3] x", "float[n, 3] y", "", "y = Clip<max = 0.5>(x)"),
    (7, "float[n, 3] x", "float[n, 3] y", "", "y = Dropout<ratio = 0.3>(x)"),
    (10, "float[n, 3] x", "float[n, 3] y", "", "y, m = Dropout(x)"),
    (7, IMAGE, "float[a, b, c, d] y", "", "y = Upsample<scales = [1.0, 1.0, 2.0, 2.0]>(x)"),
    (7, IMAGE, "float[a, b, c, d] y", "", 'y = Upsample<mode = "linear", scales = [1.0, 1.0, 2.0, 3.0]>(x)'),
    (9, IMAGE, "float[a, b, c, d] y", "float[4] s = {1, 1, 2, 2}", "y = Upsample(x, s)"),
    (10, IMAGE, "float[a, b, c, d] y", "float[4] s = {1, 1, 1.5, 0.5}", "y = Resize(x, s)"),
    (10, IMAGE, "float[a, b, c, d] y", "float[4] s = {1, 1, 2, 3}", 'y = Resize<mode = "linear">(x, s)'),
    (
        11, IMAGE, "float[a, b, c, d] y", "float[0] none = {}, float[4] s = {1, 1, 2, 2}",
        'y = Resize<coordinate_transformation_mode = "tf_half_pixel_for_nn", nearest_mode = "floor">(x, none, s)',
    ),
    (
        11, IMAGE, "float[a, b, c, d] y", "float[0] none = {}, int64[4] size = {1, 2, 5, 5}",
        'y = Resize<mode = "linear">(x, none, none, size)',
    ),
    (7, "float[n, 3, 2] x", "float[n, 3, 2] y", "", "y = Softmax(x)"),
    (12, "float[n, 3, 2] x", "float[n, 3, 2] y", "", "y = Softmax<axis = 0>(x)"),
    (12, "float[n, 3, 2] x", "float[n, 3, 2] y", "", "y = Softmax<axis = 2>(x)"),
    (11, "float[n, 3, 1, 1] x", "float[n, 3, 1, 1] y", "", "y = LogSoftmax<axis = -3>(x)"),
    (11, "float[n, 3, 2] x", "float[n, 3, 2] y", "", "y = LogSoftmax(x)"),
    (9, "float[n, 3, 2] x", "float[n, 3, 2] y", "", "y = Hardmax(x)"),
    *(
        (opset, "float[n, 3, 2] x", "float[n, a, b] y", "", f"h = Abs(x) y = Reduce{name}<axes = [1]>(h)")
        for opset, names in ((7, "L1 L2 LogSum LogSumExp Max Mean"), (17, "Min Prod SumSquare"), (12, "Sum"))
        for name in names.split()
    ),
    (12, "float[n, 3, 2] x", "float[] y", "", "y = ReduceSum<keepdims = 0>(x)"),
    (17, "float[n, 3, 2] x", "float[] y", "", "y = ReduceMean<keepdims = 0>(x)"),
    (9, "float[n, 1, 2] x", "float[a, b] y", "", "y = Squeeze<axes = [1]>(x)"),
    (9, "float[n, 1, 2] x", "float[a, b] y", "", "h = Transpose<perm = [1, 0, 2]>(x) y = Squeeze(h)"),
    (11, "float[n, 2] x", "float[a, b, c, d] y", "", "y = Unsqueeze<axes = [0, -1]>(x)"),
    (7, "float[n, 4] x", "float[n, a] y, float[n, b] z", "", "y, z = Split<axis = 1, split = [1, 3]>(x)"),
    (12, "float[n, 4] x", "float[n, a] y, float[n, b] z", "", "y, z = Split<axis = 1>(x)"),
    (13, "float[n, 4] x", "float[n, a] y, float[n, b] z", "", "y, z = Split<axis = 1>(x)"),
    (13, "float[n, 4] x", "float[n, a] y, float[n, b] z", "int64[2] s = {3, 1}", "y, z = Split<axis = 1>(x, s)"),
    (9, "float[n, 4] x", "float[n, a] y", "", "y = Slice<axes = [1], starts = [1], ends = [-1]>(x)"),
    (9, "float[n, 4] x", "float[a, b] y", "", "y = Slice<starts = [0, 1], ends = [2, 4]>(x)"),
    (9, "float[n, 4] x", "float[n, a] y, int64[n, a] i", "", "y, i = TopK<axis = 1, k = 2>(x)"),
    (10, "float[n, 4] x", "float[n, a] y", "", "y = Pad<pads = [0, 1, 0, 2]>(x)"),
    (10, "float[n, 4] x", "float[n, a] y", "", "y = Pad<pads = [0, 1, 0, 2], value = 1.5>(x)"),
    (10, "float[n, 4] x", "float[n, a] y", "", 'y = Pad<mode = "reflect", pads = [0, 1, 0, 2]>(x)'),
    (9, "float[3, 3] x, float[1, 2] u", "float[3, 3] y", "int64[1, 2] i = {1, 2}", "y = Scatter<axis = 1>(x, i, u)"),
    (17, "float[1, 4, 1] x", "float[a, b, c] y", "", "y = DFT(x)"),
    (17, "float[1, 3, 4, 2] x", "float[a, b, c, d] y", "int64 n = {4}", "y = DFT<axis = 2, inverse = 1>(x, n)"),
    (16, f"{IMAGE}, float[1, 2, 2, 2] g", "float[a, b, c, d] y", "", "y = GridSample(x, g)"),
    (16, f"{IMAGE}, float[1, 2, 2, 2] g", "float[a, b, c, d] y", "", 'y = GridSample<mode = "bicubic">(x, g)'),
    (
        10, "float[1, 1, 6, 6] x", "float[a, b, c, d] y", "float[1, 4] r = {0.5, 1, 4, 5}, int64[1] i = {0}",
        "y = RoiAlign<output_height = 2, output_width = 2>(x, r, i)",
    ),
    *(
        (opset, "float[n, 2, 3] x", "float[n, 2, 3] y", "float[2] s = {1.5, 2}, float[2] v = {0.5, 3}",
         "y = BatchNormalization<epsilon = 0.1>(x, s, s, s, v)")
        for opset in (7, 9, 14)
    ),
]  # fmt: skip


def text(row: tuple[Any, ...]) -> str:
    opset, inputs, outputs, initializers, nodes = row
    stored = f"<{initializers}>" if initializers else ""
    return f'<ir_version: 7, opset_import: ["" : {opset}]> older ({inputs}) => ({outputs}) {stored} {{ {nodes} }}'


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0]}-{row[4][:30]}" for row in ROWS])
def test_older_forms(same_results: Callable[..., list[str]], row: tuple[Any, ...]) -> None:
    same_results(text(row), sizes={"n": 2})


def test_each_adapter_has_a_row() -> None:
    used = {(node.op_type, row[0]) for row in ROWS for node in onnx.parser.parse_model(text(row)).graph.node}
    rowless = {
        (op_type, entry.before)
        for op_type, entries in ADAPTERS.items()
        for entry in entries
        if not any(name == op_type and opset < entry.before for name, opset in used)
    }
    assert rowless == {("GroupNormalization", 21), ("Scan", 9)}  # in test_decompositions.py, and here


def test_a_scan_over_a_batch_of_sequences_is_refused() -> None:
    model = """
    <ir_version: 3, opset_import: ["" : 8]>
    older (float[1, 2] a, float[1, 3, 2] x) => (float[1, 2] y, float[1, 3, 2] z) {
        y, z = Scan <num_scan_inputs = 1, body = step (float[2] b, float[2] e) => (float[2] c, float[2] d) {
            c = Add(b, e)
            d = Neg(c)
        }> (, a, x)
    }
    """
    with pytest.raises(UnsupportedModelError, match="form of opset 8"):
        canonicalize(onnx.parser.parse_model(model))
