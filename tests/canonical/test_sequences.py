from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from edgeopt.autodiff import backward
from edgeopt.canonical import canonicalize
from edgeopt.errors import UnsupportedOperatorError
from edgeopt.tracing import Tracer

HEADER = '<ir_version: 9, opset_import: ["" : 20]>'

PROGRAMS = {
    "construct and take": """
        (float[2, 3] x, float[2, 3] z) => (float[2, 3] y) {
            last = Constant<value_int = -1>()
            s = SequenceConstruct(x, z)
            a = SequenceAt(s, last)
            y = Mul(a, x)
        }""",
    "split evenly and join": """
        (float[2, 5] x) => (float[2, 5] y) {
            two = Constant<value_int = 2>()
            s = SplitToSequence<axis = 1>(x, two)
            j = ConcatFromSequence<axis = -1>(s)
            y = Mul(j, j)
        }""",
    "split by sizes": """
        (float[2, n] x) => (float[2, 2] y) <int64[2] sizes = {1, 2}, int64 one = {1}> {
            s = SplitToSequence<axis = 1>(x, sizes)
            a = SequenceAt(s, one)
            y = Mul(a, a)
        }""",
    "split into rows and stack": """
        (float[3, 2] x) => (float[2, 3] y) {
            s = SplitToSequence<axis = 0, keepdims = 0>(x)
            j = ConcatFromSequence<axis = 1, new_axis = 1>(s)
            y = Exp(j)
        }""",
    "split into rows that keep the axis": """
        (float[3, 2] x) => (float[1, 2] y) <int64 one = {1}> {
            s = SplitToSequence<axis = 0>(x)
            a = SequenceAt(s, one)
            y = Exp(a)
        }""",
    "insert and erase": """
        (float[2] x, float[2] z) => (float[2, 4] y) <int64 first = {0}, int64 before_last = {-1}, int64 two = {2}> {
            e = SequenceEmpty()
            a = SequenceInsert(e, x)
            b = SequenceInsert(a, z, first)
            x2 = Mul(x, x)
            c = SequenceInsert(b, x2, before_last)
            z2 = Mul(z, z)
            d = SequenceInsert(c, z2, two)
            f = SequenceInsert(d, x)
            g = SequenceErase(f, before_last)
            y = ConcatFromSequence<axis = 1, new_axis = 1>(g)
        }""",
    "erase the last": """
        (float[2] x, float[2] z) => (float[2] y) {
            s = SequenceConstruct(x, z)
            t = SequenceErase(s)
            u = Identity(t)
            y = ConcatFromSequence<axis = 0>(u)
        }""",
    "a length": """
        (float[2] x, float[2] z) => (float[2] y) {
            s = SequenceConstruct(x, z, x)
            n = SequenceLength(s)
            m = Cast<to = 1>(n)
            y = Mul(x, m)
        }""",
    "a map": """
        (float[2] x, float[2] z) => (float[2, 2] y) {
            s = SequenceConstruct(x, z)
            t = SequenceMap(s, x) <body = g (float[2] a, float[2] b) => (float[2] r) { r = Mul(a, b) }>
            y = ConcatFromSequence<axis = 0, new_axis = 1>(t)
        }""",
    "an optional value": """
        (float[2] x) => (float[2] y) {
            o = Optional(x)
            h = OptionalHasElement(o)
            c = Cast<to = 1>(h)
            v = OptionalGetElement(o)
            y = Mul(v, c)
        }""",
    "an optional sequence": """
        (float[2] x) => (float[2] y) <int64 first = {0}> {
            s = SequenceConstruct(x)
            o = Optional(s)
            v = OptionalGetElement(o)
            a = SequenceAt(v, first)
            y = Exp(a)
        }""",
    "a sequence inside a branch": """
        (float[2] x, bool c) => (float[2] y) <int64 first = {0}> {
            s = SequenceConstruct(x, x)
            y = If(c) <
                then_branch = t () => (float[2] p) { a = SequenceAt(s, first)  p = Exp(a) },
                else_branch = e () => (float[2] q) { b = SequenceAt(s, first)  q = Neg(b) }
            >
        }""",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_known_contents_are_used_directly(program: str, same_results: Callable[..., list[str]]) -> None:
    inputs = {"c": np.asarray(True)} if "bool c" in PROGRAMS[program] else None
    operators = same_results(f"{HEADER} g {PROGRAMS[program]}", inputs, sizes={"n": 3}, order=2)
    assert not [name for name in operators if "Sequence" in name or "Optional" in name]


def test_what_is_known_at_run_time_only_is_refused() -> None:
    text = f"""{HEADER} g (float[2] x, int64 i) => (float[2] y) {{
        s = SequenceConstruct(x, x)
        y = SequenceAt(s, i)
    }}"""
    graph = canonicalize(onnx.parser.parse_model(text)).graph
    tracer = Tracer(graph)
    seed = tracer.constant(np.ones(2, np.float32))
    with pytest.raises(UnsupportedOperatorError, match="only known at run time"):
        backward(tracer, {graph.outputs[0]: seed}, [graph.inputs[0]])


def test_a_sequence_that_is_a_result_stays() -> None:
    text = f"{HEADER} g (float[2] x) => (seq(float[2]) y) {{ y = SequenceConstruct(x, x) }}"
    model = ir.serde.serialize_model(canonicalize(onnx.parser.parse_model(text)))
    assert [node.op_type for node in model.graph.node] == ["SequenceConstruct"]
