"""Chains hold exactly the nodes that they replace, and a program that says the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeopt import tracing as xp
from edgeopt.fusion import fuse, is_chain, unfuse
from edgeopt.lowering import lower
from edgeopt.tracing import Array, Tracer, new_graph, new_model, trace_function

Arrays = dict[str, Array]


def both(body: Any, inputs: dict[str, np.ndarray[Any, Any]]) -> tuple[list[Any], list[Any], ir.Model]:
    """What a function gives without chains and with them, and the model with them."""
    results, model = [], None
    for fused in (False, True):
        function = trace_function("Rule", {key: (value.dtype, value.shape) for key, value in inputs.items()}, body)
        graph = new_graph("main")
        tracer = Tracer(graph)
        names = [value.name or "" for value in function.outputs]
        given_to = {value.name or "": inputs[value.name or ""] for value in function.inputs}
        arguments = [tracer.input(name, value.dtype, value.shape) for name, value in given_to.items()]
        for name, array in zip(names, tracer.call(function, arguments, names), strict=True):
            tracer.output(array, name)
        lower(function.graph)
        chains = fuse(function, {"Rule"}) if fused else []
        model = new_model(graph, [function, *chains])
        proto = ir.to_proto(model).SerializeToString()
        session = onnxruntime.InferenceSession(proto, providers=["CPUExecutionProvider"])
        results.append(session.run(None, {value.name: inputs[value.name] for value in session.get_inputs()}))
    assert model is not None
    return results[0], results[1], model


def chains_of(model: ir.Model) -> list[ir.Function]:
    return [function for function in model.functions.values() if is_chain(function)]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=14), st.integers(0, 2**31))
def test_any_arithmetic_comes_out_the_same(choices: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"a": (3, 4), "b": (3, 4), "c": (5,), "s": ()}
    inputs = {key: np.asarray(rng.normal(size=shape), np.float32) for key, shape in shapes.items()}

    def body(x: Arrays) -> Arrays:
        flat = xp.concat([xp.reshape(x["a"], [-1]), x["c"]])
        parts = flat.tracer.emit("Split", flat * x["s"], np.array([5, 12]), outputs=2, axis=0)
        made = [x["a"], x["b"], xp.reshape(parts[1], [3, 4])]
        for place, choice in enumerate(choices):
            p, q = made[(choice * 7 + place) % len(made)], made[-1]
            steps = (
                lambda p, q: p + q * x["s"],
                lambda p, q: p - q,
                lambda p, q: p * q,
                lambda p, q: xp.sqrt(xp.abs(p)) + 0.5,
                lambda p, q: xp.where(p > q, p, q),
                lambda p, q: p * xp.sum(q),
                lambda p, q: xp.maximum(p, q),
                lambda p, q: p @ xp.reshape(q, [4, 3]) @ p,
                lambda p, q: -p / (xp.abs(q) + 1.0),
                lambda p, q: xp.reshape(xp.reshape(p, [-1]) * 2.0, [3, 4]),
            )
            made.append(steps[choice](p, q))
        return {"last": made[-1], "middle": made[len(made) // 2] * 1.0, "sum": xp.sum(made[-1]), "part": parts[0]}

    plain, fused, _ = both(body, inputs)
    for one, other in zip(plain, fused, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)


def test_levels_are_chains_of_their_own_and_unfuse_takes_them_back() -> None:
    def body(x: Arrays) -> Arrays:
        scaled = x["a"] * 2.0 + 1.0
        return {"y": scaled / xp.sum(scaled * scaled) - 1.0}

    _, _, model = both(body, {"a": np.ones((2, 3), np.float32)})
    assert [function.name for function in chains_of(model)] == ["Chain", "Chain_2"]
    unfuse(model)
    assert not chains_of(model)
    assert not any(node.op_type.startswith("Chain") for function in model.functions.values() for node in function)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int64])
def test_other_types_stay_as_they_are(dtype: Any) -> None:
    _, _, model = both(lambda x: {"y": x["a"] * x["a"] + x["a"]}, {"a": np.ones((2, 3), dtype)})
    assert not chains_of(model)
