"""A file's own symbolic dimensions are tried, and what is made of it is compared with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import edgeopt
from edgeopt.errors import ExportDifferenceError, SignatureError
from edgeopt.training.forward import ForwardModel
from edgeopt_exporters.onnx_file import from_onnx, importer


def file(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {body}')


def said(forward: ForwardModel) -> Mapping[tuple[str, str], str]:
    return {(decision.kind, decision.subject): decision.text for decision in forward.decisions}


def sizes(forward: ForwardModel) -> dict[str, str]:
    return {
        value.name or "": str(value.shape)
        for value in forward.evaluate.model.graph.inputs[: len(forward.evaluate.inputs)]
    }


DENSE = "<float[3, 2] w = {1, 2, 3, 4, 5, 6}>"


def test_a_dimension_at_which_the_file_runs() -> None:
    forward = from_onnx(file(f"m (float[n, 3] x) => (float[n, 2] y) {DENSE} {{ y = MatMul(x, w) }}"))
    assert sizes(forward) == {"x": "[n,3]"}
    assert said(forward) == {
        ("symbolic", "n"): "n is symbolic: results equal the file's at 2, 3 and 1",
        ("checked", "predict"): "predictions equal the file's on ONNX Runtime",
    }


ONE = """
m (float[n, 3] x) => (float[n, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}, float zero = {0}, int64[1] all = {1}> {
    h = MatMul(x, w) s = ReduceSum<keepdims = 0>(h, all) positive = Greater(s, zero)
    y = If(positive) <then_branch = one () => (float[n, 2] t) { t = Neg(h) },
                      else_branch = two () => (float[n, 2] e) { e = Exp(h) }>
}
"""


def test_a_condition_that_needs_one_example() -> None:
    """The file calls its size n, and runs at one only."""
    forward = from_onnx(file(ONE))
    assert sizes(forward) == {"x": "[1,3]"}
    assert said(forward)["fixed", "n"].startswith("n is fixed at 1: the file itself fails at 2")


BAKED = """
m (float[n, 3] x) => (float[n, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}, int64[2] two = {2, 2}> {
    h = MatMul(x, w) y = Reshape(h, two)
}
"""


def test_the_size_of_an_example_in_a_file_that_says_symbolic() -> None:
    """It fails at any other; rewritten, it takes them."""
    forward = from_onnx(file(BAKED), np.zeros((2, 3)))
    assert sizes(forward) == {"x": "[batch,3]"}
    assert said(forward)["symbolic", "batch"].startswith("batch is symbolic, where the file has 2: of 3 together")
    assert ("fixed", "n") not in said(forward)


def test_dimensions_that_go_together() -> None:
    """Under two names, as some exporters number all they do not know."""
    forward = from_onnx(
        file(
            f"m (float[unk_1, 3] x, float[unk_2, 2] z) => (float[unk_3, 2] y) {DENSE} "
            "{ h = MatMul(x, w) y = Concat<axis = 1>(h, z) }"
        )
    )
    assert sizes(forward) == {"x": "[unk_1,3]", "z": "[unk_1,2]"}
    assert said(forward)["symbolic", "unk_1"].startswith("unk_1 is symbolic, and the same as unk_2: ")


def test_a_dimension_that_the_caller_names() -> None:
    """Also where the file has a number; the file is then run at others, too."""
    text = f"m (float[1, 4, 3] x) => (float[1, 4, 2] y) {DENSE} {{ y = MatMul(x, w) }}"
    forward = from_onnx(file(text), dynamic_shapes={"x": {1: "time"}})
    assert sizes(forward) == {"x": "[1,time,3]"}
    assert "time is symbolic" in said(forward)["symbolic", "time"]
    bound = text.replace("y = MatMul(x, w)", "h = MatMul(x, w) y = Reshape(h, four)").replace(
        "<float", "<int64[3] four = {1, 4, 2}, float"
    )
    with pytest.raises(SignatureError, match="'time': the file itself fails at 5"):
        from_onnx(file(bound), dynamic_shapes={"x": {1: "time"}})


def test_a_graph_that_is_another_at_other_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an export gets wrong at other sizes than the example's makes the dimension a number."""
    finished = importer._finished

    def broken(*arguments: Any) -> ForwardModel:
        forward: ForwardModel = finished(*arguments)
        for node in forward.evaluate.model.graph:
            if node.op_type == "MatMul" and not str(node.inputs[0].shape).startswith("[1,8,"):  # type: ignore[union-attr]  # it has an input
                node.replace_input_with(1, node.inputs[1])
                slice_to(node, 8)
        return forward

    def slice_to(node: ir.Node, size: int) -> None:
        graph = node.graph
        assert graph is not None
        names = {"starts": [-size], "ends": [99], "axes": [1]}
        constants = [ir.Node("", "Constant", [], [ir.AttrInt64s("value_ints", numbers)]) for numbers in names.values()]
        cut = ir.Node("", "Slice", [node.inputs[0], *(constant.outputs[0] for constant in constants)])
        for new in (*constants, cut):
            graph.insert_before(node, new)
        cut.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
        node.replace_input_with(0, cut.outputs[0])

    monkeypatch.setattr(importer, "_finished", broken)
    forward = from_onnx(file(f"m (float[1, t, 3] x) => (float[1, t, 2] y) {DENSE} {{ y = MatMul(x, w) }}"))
    assert sizes(forward)["x"].endswith(",8,3]")
    why = said(forward)["fixed", "t"]
    assert why.startswith("t is fixed at 8: at 9 the exported graph is not the file: output 'y' has shape [1, 8, 2]")


def test_a_graph_that_is_another_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A translation broken on purpose is found; without the check it is not."""
    finished = importer._finished

    def broken(*arguments: Any) -> ForwardModel:
        forward: ForwardModel = finished(*arguments)
        for node in forward.evaluate.model.graph:
            if node.op_type == "Exp":
                node.op_type = "Sinh"
        return forward

    monkeypatch.setattr(importer, "_finished", broken)
    model = file(f"m (float[n, 3] x) => (float[n, 2] y) {DENSE} {{ h = MatMul(x, w) y = Exp(h) }}")
    with pytest.raises(ExportDifferenceError, match="output 'y' differs by") as caught:
        from_onnx(model)
    assert len(caught.value.differences) == 1
    assert from_onnx(model, check=False).decisions == ()


def test_a_file_that_onnx_runtime_does_not_know() -> None:
    model = file(f"m (float[n, 3] x) => (float[n, 2] y, float[n, 2] z) {DENSE} {{ y = MatMul(x, w) z = their.Own(x) }}")
    model.opset_import.append(onnx.helper.make_opsetid("their", 1))
    (decision,) = from_onnx(model).decisions
    assert (decision.kind, decision.warning) == ("unchecked", True)
    assert "ONNX Runtime does not load the file" in decision.text


def test_a_file_in_training_mode_is_compared_as_in_evaluation() -> None:
    model = file("""
    m (float[n, 2] x) => (float[n, 2] y)
    <float[2] g = {1, 2}, float[2] b = {0, 1}, float[2] mean = {1, 2}, float[2] var = {3, 4},
     bool yes = {1}, float r = {0.5}> {
        h, m, v = BatchNormalization<training_mode = 1>(x, g, b, mean, var) y = Dropout(h, r, yes)
    }
    """)
    assert ("checked", "predict") in said(from_onnx(model))


@pytest.mark.parametrize("drawn", ["RandomNormalLike(h)", "RandomUniformLike(h)", "Bernoulli(p)"])
def test_random_numbers_are_compared_in_shape(drawn: str) -> None:
    forward = from_onnx(
        file(
            f"m (float[n, 3] x) => (float[n, 2] y) {DENSE} "
            f"{{ h = MatMul(x, w) p = Sigmoid(h) r = {drawn} y = Mul(p, r) }}"
        )
    )
    assert "in shape only" in said(forward)["unchecked", "predict"]
    assert "shapes equal the file's" in said(forward)["symbolic", "n"]


def test_what_the_examples_are_tells_the_inputs() -> None:
    """Indices that a table has not would fail."""
    model = file("""
    m (int64[n, 2] ids) => (float[n, 2, 3] y) <float[2, 3] table = {1, 2, 3, 4, 5, 6}, int64 five = {5}> {
        i = Sub(ids, five) y = Gather(table, i)
    }
    """)
    assert ("checked", "predict") in said(from_onnx(model, np.asarray([[5, 6], [6, 6]])))


def test_export_says_it_and_the_bundle_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    bundle = edgeopt.export(
        file(f"m (float[n, 3] x) => (float[n, 2] y) {DENSE} {{ y = MatMul(x, w) }}"),
        loss=edgeopt.losses.MSE(),
        optimizer=edgeopt.optimizers.SGD(lr=0.1),
    )
    assert {decision.kind for decision in bundle.decisions} == {"symbolic", "checked"}
    assert "edgeopt: n is symbolic" in capsys.readouterr().err
