"""Operators that are said with others, on the cases that onnx ships for them: the outputs are those of the cases."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import onnx.backend.test.case.node
import onnx.defs
import onnx.numpy_helper
import onnx_ir as ir
import onnxruntime
import pytest

from edgeopt.canonical import DECOMPOSITIONS, canonicalize

OPERATORS = sorted(name for name in DECOMPOSITIONS if onnx.defs.has(name))
_HALF = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


@functools.cache
def all_cases() -> list[Any]:
    # The cases draw from numpy's global generator, and some compute infinities on purpose.
    state = np.random.get_state()
    np.random.seed(0)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        collected = onnx.backend.test.case.node.collect_testcases(None)
    np.random.set_state(state)
    return [case for case in collected if case.model is not None and case.data_sets]


def array(data: Any) -> Any:
    return onnx.numpy_helper.to_array(data) if isinstance(data, onnx.TensorProto) else np.asarray(data)


def make_constant(model: onnx.ModelProto, name: str, value: Any) -> None:
    """What has to be known before the run is an input in the cases; an initializer may be an input, too."""
    model.graph.initializer.append(onnx.numpy_helper.from_array(array(value), name))


@pytest.mark.parametrize("operator", OPERATORS)
def test_outputs(operator: str) -> None:
    named = [case for case in all_cases() if case.model.graph.node[0].op_type == operator]
    found = [case for case in named if has_kernels(case.model)]
    assert found
    for case in found:
        if operator == "CumProd":
            make_constant(case.model, "axis", case.data_sets[0][0][1])
        model = ir.serde.serialize_model(canonicalize(case.model))
        assert operator not in {node.op_type for node in model.graph.node}
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        for given, expected in case.data_sets:
            feeds = dict(zip((value.name for value in case.model.graph.input), map(array, given), strict=True))
            taken = {value.name for value in session.get_inputs()}
            results = session.run(None, {name: value for name, value in feeds.items() if name in taken})
            assert len(results) == len(expected)
            for result, wanted in zip(results, map(array, expected), strict=True):
                assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape), case.name
                rtol, atol = max(case.rtol, 1e-5), 1e-2 if result.dtype == np.float16 else 1e-6
                np.testing.assert_allclose(result, wanted, rtol, atol, err_msg=case.name)


def has_kernels(model: onnx.ModelProto) -> bool:
    """ONNX Runtime's CPU provider computes little in half precision, and casts to and from few of the small types."""
    types = [value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)]
    return not any(kind in _HALF or kind > onnx.TensorProto.BFLOAT16 for kind in types)
