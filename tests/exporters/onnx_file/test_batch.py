"""A file for a fixed number of examples takes any number, where it treats each alone."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.parser
import onnxruntime
import pytest

from edgeopt.testing.programs import Program
from edgeopt_exporters.onnx_file import from_onnx

RANDOM = np.random.default_rng(0)


def written(body: str, inputs: str, outputs: str, **weights: np.ndarray) -> onnx.ModelProto:
    """A file with these nodes; `COUNT` in them is the number of examples."""
    text = f'<ir_version: 8, opset_import: ["" : 18]> model ({inputs}) => ({outputs}) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    for name, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def w(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def i(*numbers: int) -> np.ndarray:
    return np.asarray(numbers, np.int64)


def dimension(model: onnx.ModelProto) -> tuple[object, str]:
    """Axis 0 of the input, and what was said of it."""
    forward = from_onnx(model)
    graph = forward.evaluate.model.graph
    (value,) = (value for value in graph.inputs if value.name == "x")
    assert value.shape is not None
    (said,) = (decision.text for decision in forward.decisions if decision.subject == "batch")
    return str(value.shape[0]), said


def each_alone(model: onnx.ModelProto, count: int, total: int, shape: tuple[int, ...]) -> None:
    """Many examples together give what the file gives for each."""
    forward = from_onnx(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = w(total, *shape)
    state = {**forward.parameters, **forward.buffers}
    (found,) = Program(forward.evaluate.model).run({"x": x, **state}).values()
    (train,) = Program(forward.train.model).run({"x": x, **state}).values()
    parts = [session.run(None, {"x": x[at : at + count]})[0] for at in range(0, total, count)]
    np.testing.assert_allclose(found, np.concatenate(parts), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(train, found, rtol=1e-6)


# Of each kind of number written down: nodes, what goes in and out of one example, constants for so many examples.
KINDS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], object]] = {
    "a reshape that allows zeros": (
        "h = Reshape<allowzero = 1>(x, flat) y = MatMul(h, k)",
        (2, 3),
        (4,),
        lambda n: {"flat": i(n, 6), "k": w(6, 4)},
    ),
    "a reshape that infers the rest": (
        "h = Reshape(x, flat) y = MatMul(h, k)",
        (2, 3),
        (4,),
        lambda n: {"flat": i(n, -1), "k": w(6, 4)},
    ),
    "heads merged with examples": (
        "t = Transpose<perm = [0, 2, 1, 3]>(x) h = Reshape(t, merged) p = MatMul(h, k) y = Reshape(p, apart)",
        (3, 2, 4),
        (2, 3, 4),
        lambda n: {"merged": i(n * 2, 3, 4), "k": w(4, 4), "apart": i(n, 2, 3, 4)},
    ),
    "examples behind positions": (
        "t = Transpose<perm = [1, 0, 2]>(x) h = Reshape(t, rows) g = Gemm(h, k) r = Reshape(g, back) "
        "y = Transpose<perm = [1, 0, 2]>(r)",
        (5, 4),
        (5, 3),
        lambda n: {"rows": i(5 * n, 4), "k": w(4, 3), "back": i(5, n, 3)},
    ),
    "a token in front of each": (
        "c = Expand(token, target) h = Concat<axis = 1>(c, x) p = Add(h, position) y = MatMul(p, k)",
        (3, 4),
        (4, 2),
        lambda n: {"token": w(1, 1, 4), "target": i(n, 1, 4), "position": w(1, 4, 4), "k": w(4, 2)},
    ),
    "positions of each": (
        "e = Gather(table, ids) h = Add(x, e) y = MatMul(h, k)",
        (3, 4),
        (3, 2),
        lambda n: {"table": w(3, 4), "ids": np.tile(np.arange(3), (n, 1)), "k": w(4, 2)},
    ),
    "a mask built from sizes": (
        "s = ConstantOfShape<value = float[1] {0.5}>(shape) h = Mul(x, s) y = MatMul(h, k)",
        (3, 4),
        (3, 2),
        lambda n: {"shape": i(n, 3, 4), "k": w(4, 2)},
    ),
    "states of a recurrent layer": (
        "t = Transpose<perm = [1, 0, 2]>(x) a, h, c = LSTM<hidden_size = 3>(t, k, r, , , zero, zero) "
        "y = Squeeze(h, first)",
        (5, 4),
        (3,),
        lambda n: {"k": w(1, 12, 4), "r": w(1, 12, 3), "zero": np.zeros((1, n, 3), np.float32), "first": i(0)},
    ),
    "the ends of a slice": (
        "h = Slice(x, starts, ends, axes) y = MatMul(h, k)",
        (3, 4),
        (2, 2),
        lambda n: {"starts": i(0, 1), "ends": i(n, 3), "axes": i(0, 1), "k": w(4, 2)},
    ),
    "sizes of an image": (
        "h = Conv(x, k) y = Resize<mode = \"linear\">(h, , , sizes)",
        (2, 3, 3),
        (2, 5, 5),
        lambda n: {"k": w(2, 2, 1, 1), "sizes": i(n, 2, 5, 5)},
    ),
    "a squeeze that names no axis": (
        "h = Squeeze(x) y = MatMul(h, k)",
        (1, 4),
        (2,),
        lambda n: {"k": w(4, 2)},
    ),
    "indices of each": (
        "h = GatherElements<axis = 1>(x, ids) y = MatMul(h, k)",
        (3, 2),
        (1, 2),
        lambda n: {"ids": np.tile(np.asarray([[[2, 0]]]), (n, 1, 1)), "k": w(2, 2)},
    ),
}  # fmt: skip


# Of one example, a squeeze of all axes takes the example's own.
CASES = [(kind, count) for kind in KINDS for count in (1, 2) if not (kind.startswith("a squeeze") and count == 1)]


@pytest.mark.parametrize(("kind", "count"), CASES)
def test_what_is_written_down_for_a_number_of_examples(kind: str, count: int) -> None:
    body, shape, result, constants = KINDS[kind]
    dims = ", ".join(map(str, (count, *shape)))
    model = written(
        body,
        f"float[{dims}] x",
        f"float[{', '.join(map(str, (count, *result)))}] y",
        **constants(count),  # type: ignore[operator]  # a function, in a table of several things
    )
    assert dimension(model)[0] == "batch"
    each_alone(model, count, 6, shape)


MIXING = {
    "their mean": "h = MatMul(x, k) m = ReduceMean(h, zero) y = Sub(h, m)",
    "a softmax over them": "h = MatMul(x, k) y = Softmax<axis = 0>(h)",
    "a running sum": "h = MatMul(x, k) s = CumSum(h, axis) y = Mul(s, s)",
    "one reversed": "h = MatMul(x, k) y = Slice(h, last, before, zero, back)",
    "the first of them": "h = MatMul(x, k) f = Gather<axis = 0>(h, zero) y = Add(h, f)",
    "a weight for each": "h = MatMul(x, k) y = Mul(h, gains)",
}  # fmt: skip


@pytest.mark.parametrize("kind", MIXING)
def test_examples_that_meet_stay_as_many(kind: str) -> None:
    constants = {
        "k": w(3, 2), "zero": i(0), "axis": np.asarray(0, np.int64), "last": i(-1), "before": i(-9), "back": i(-1),
        "gains": np.asarray([[1], [2]], np.float32),
    }  # fmt: skip
    used = {name: array for name, array in constants.items() if name in MIXING[kind]}
    size, said = dimension(written(MIXING[kind], "float[2, 3] x", "float[2, 2] y", **used))
    assert size == "2"
    assert said.startswith("the number of examples is fixed at 2: ")


def test_a_file_that_needs_one_example() -> None:
    """What it decides by one number has no answer for two."""
    model = written(
        """
        h = MatMul(x, k) s = ReduceSum<keepdims = 0>(h, axis) positive = Greater(s, zero)
        y = If(positive) <then_branch = one () => (float[1, 2] t) { t = Mul(h, two) },
                          else_branch = other () => (float[1, 2] e) { e = Neg(h) }>
        """,
        "float[1, 3] x",
        "float[1, 2] y",
        k=w(3, 2), axis=i(1), zero=np.asarray(0, np.float32), two=np.asarray(2, np.float32),
    )  # fmt: skip
    size, said = dimension(model)
    assert size == "1"
    assert "fixed at 1" in said


def test_inputs_that_differ_in_axis_0() -> None:
    model = written("h = MatMul(x, k) y = Add(h, z)", "float[1, 3] x, float[2, 2] z", "float[2, 2] y", k=w(3, 2))
    assert dimension(model) == (
        "1",
        "the number of examples is as in the file: the inputs differ in axis 0: 1 in 'x', 2 in 'z'",
    )


def test_random_numbers_for_so_many_examples() -> None:
    model = written(
        "h = MatMul(x, k) r = RandomUniform<shape = [2, 2]>() y = Add(h, r)",
        "float[2, 3] x",
        "float[2, 2] y",
        k=w(3, 2),
    )
    size, said = dimension(model)
    assert size == "2"
    assert "draws random numbers" in said
