from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from edgeopt.canonical import canonicalize
from edgeopt.errors import UnsupportedModelError

Check = Callable[..., list[str]]


def test_initializers_that_are_inputs_too(same_results: Check) -> None:
    """As IR 3 demands."""
    text = """
    <ir_version: 3, opset_import: ["" : 9]>
    old (float[n, 2] x, float[2] w) => (float[n, 2] y) <float[2] w = {1.5, 2}> { y = Mul(x, w) }
    """
    assert same_results(text, sizes={"n": 3}) == ["Mul"]
    assert [value.name for value in canonicalize(onnx.parser.parse_model(text)).graph.inputs] == ["x"]


def test_a_function_of_another_opset(same_results: Check) -> None:
    """Its Squeeze has an attribute, that of the model an input."""
    text = """
    <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    model (float[n, 1, 2, 1] x) => (float[n, 2] y) <int64[1] axes = {2}> {
        h = local.squeezed(x)
        y = Squeeze(h, axes)
    }
    <domain: "local", opset_import: ["" : 11]>
    squeezed (x) => (y) { y = Squeeze<axes = [1]>(x) }
    """
    operators = same_results(text, sizes={"n": 3}, reference=lambda x: [x.reshape(3, 2)])
    assert operators.count("Squeeze") == 2


def test_newer_opsets_whose_operators_the_target_has(same_results: Check) -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 22]>
    newer (float[n, 2] x) => (float[n, 1] y) <float scale = {0.1}, uint8 zero = {128}> {
        q = QuantizeLinear<block_size = 0>(x, scale, zero)
        h = DequantizeLinear(q, scale, zero)
        axes = Constant<value_ints = [1]>()
        y = ReduceMax(h, axes)
    }
    """
    same_results(text, sizes={"n": 3})


def test_what_the_target_cannot_say_is_named() -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 22]>
    newer (bfloat16[n, 2] x, float[2] scale, float[n, 2] z) => (bfloat16[n, 2] y, int8[n, 2] q) {
        y = HardSwish(x)
        q = QuantizeLinear<axis = 1, block_size = 2>(z, scale)
    }
    """
    model = onnx.parser.parse_model(text)
    model.graph.node[0].name = "first"
    with pytest.raises(UnsupportedModelError) as caught:
        canonicalize(model)
    message = str(caught.value)
    assert "opset 22" in message
    assert "HardSwish 'first': its input 'x' is a tensor(bfloat16)" in message
    assert "QuantizeLinear 'QuantizeLinear_q': its attribute block_size is newer" in message


def test_an_operator_that_only_a_newer_opset_has() -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 26]>
    newer (float[n] x) => (int32[n] y) { y = BitCast<to = 6>(x) }
    """
    with pytest.raises(UnsupportedModelError, match="BitCast 'BitCast_y': the operator is newer"):
        canonicalize(onnx.parser.parse_model(text))


def test_opsets_that_are_too_old() -> None:
    text = '<ir_version: 3, opset_import: ["" : 6]> old (float[2] x) => (float[2] y) { y = Relu(x) }'
    with pytest.raises(UnsupportedModelError, match="opset 6"):
        canonicalize(onnx.parser.parse_model(text))


def test_the_long_name_of_the_standard_domain(same_results: Check) -> None:
    text = """
    <ir_version: 8, opset_import: ["ai.onnx" : 11]>
    model (float[2] x) => (float[1, 2] y) { y = ai.onnx.Unsqueeze<axes = [0]>(x) }
    """
    assert "Unsqueeze" in same_results(text)


BRANCHES = """
<ir_version: 8, opset_import: ["" : 10]>
model (float[n, 2] x, bool other) => (float[a, b, c] y, float[n, 2] z) <bool yes = {1}> {
    y = If (yes) <
        then_branch = one () => (float[a, b, c] u) {
            w = Constant<value = float[2] {1, 2}>()
            h = Mul(x, w)
            u = Unsqueeze<axes = [1]>(h)
        },
        else_branch = two () => (float[a, b, c] v) { v = Unsqueeze<axes = [2]>(x) }
    >
    z = If (other) <
        then_branch = three () => (float[n, 2] p) { h = Exp(x) p = Clip<max = 0.5>(h) },
        else_branch = four () => (float[n, 2] q) { h = Neg(x) q = Softmax<axis = 0>(h) }
    >
}
"""


@pytest.mark.parametrize("other", [True, False])
def test_branches(same_results: Check, other: bool) -> None:
    """One on a constant gives way to its branch; the bodies of the other are converted."""
    operators = same_results(
        BRANCHES, {"other": np.asarray(other)}, sizes={"n": 3}, reference=lambda x, other: expected(x, other)
    )
    assert operators.count("If") == 1
    assert "Unsqueeze" in operators


def expected(x, other):
    exponentials = np.exp(-x)
    y = (x * [1, 2])[:, None].astype(np.float32)
    return [y, np.minimum(np.exp(x), 0.5) if other else exponentials / exponentials.sum()]


def test_names_of_inlined_branches_do_not_meet(same_results: Check) -> None:
    """Both branches call a tensor `h`."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    model (float[2] x) => (float[2] y, float[2] z) <bool yes = {1}, bool no = {0}> {
        y = If (yes) <
            then_branch = one () => (float[2] u) { h = Exp(x) u = Neg(h) },
            else_branch = two () => (float[2] u) { u = Neg(x) }
        >
        z = If (no) <
            then_branch = three () => (float[2] u) { u = Neg(x) },
            else_branch = four () => (float[2] u) { h = Sin(x) u = Abs(h) }
        >
    }
    """
    operators = same_results(text, reference=lambda x: [-np.exp(x), np.abs(np.sin(x))])
    assert sorted(operators) == ["Abs", "Exp", "Neg", "Sin"]


def test_a_body_that_returns_one_tensor_twice(same_results: Check) -> None:
    """ONNX Runtime leaves the second one undefined, so each result of a body is a tensor of its own."""
    text = """
    <ir_version: 9, opset_import: ["" : 20]>
    model (float[2] first, float[5, 2] x) => (float[2] y, float[5, 2] z) {
        y, z = Scan <num_scan_inputs = 1, body = step (float[2] a, float[2] b) => (float[2] c, float[2] d) {
            c = Add(a, b)
            d = Identity(c)
        }> (first, x)
    }
    """
    same_results(text, reference=lambda first, x: [first + x.sum(0), first + x.cumsum(0)])


def test_the_given_model_stays_as_it_was() -> None:
    model = onnx.parser.parse_model(BRANCHES)
    before = model.SerializeToString()
    canonicalize(model)
    assert model.SerializeToString() == before
    own = ir.serde.deserialize_model(model)
    canonicalize(own)
    assert ir.serde.serialize_model(own).graph.node[0].op_type == "If"


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_outputs_that_are_copies_of_each_other_keep_their_names(domain):
    if domain:
        nodes = [onnx.helper.make_node("QuickGelu", ["x"], [name], domain=domain) for name in ("y", "z")]
    else:
        nodes = [onnx.helper.make_node("Relu", ["x"], ["y"]), onnx.helper.make_node("Identity", ["y"], ["z"])]
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "copies",
        [onnx.helper.make_tensor_value_info("x", kind, [2])],
        [onnx.helper.make_tensor_value_info(name, kind, [2]) for name in ("z", "y")],
    )
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("com.microsoft", 1)]
    outputs = canonicalize(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)).graph.outputs
    assert [value.name for value in outputs] == ["z", "y"]


def test_constants_that_the_evaluator_cannot_gather(same_results: Check, capfd: pytest.CaptureFixture[str]) -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    model (float[1, 2] x) => (float[1, 2] y)
    <int64[1, 5] table = {5, 6, 7, 8, 9}, int64[1, 2] places = {3, 1},
     float[1, 10] data = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}> {
        index = GatherElements<axis = 1>(table, places)
        chosen = GatherElements<axis = 1>(data, index)
        y = Mul(x, chosen)
    }
    """
    same_results(text)
    assert "Evaluation failed" not in capfd.readouterr().err
