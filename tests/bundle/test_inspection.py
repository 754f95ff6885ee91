from __future__ import annotations

import json
import subprocess
import sys

import pytest

from edgeopt.bundle import inspect
from edgeopt_runtime import GraphError


def test_tensors_are_listed_with_their_sizes(bundle):
    report = bundle.inspect()
    assert [(row.name, row.role, row.dtype, row.shape, row.trainable, row.bytes) for row in report.tensors] == [
        ("gain", "parameter", "float32", (), True, 4),
        ("optimizer.step", "counter", "int64", (), False, 8),
    ]
    assert [row.name for row in report.accumulators] == ["accumulator.gain"]
    assert report.bytes_by_role == {"parameter": 4, "counter": 8}


def test_operators_are_counted_in_subgraphs_too(bundle):
    predict, step = bundle.inspect().graphs
    assert predict.name == "predict"
    assert predict.operators == {"Mul": 1}
    assert step.operators == {"Abs": 1, "If": 1, "IsNaN": 1, "Neg": 1, "ReduceMax": 1, "edgeopt::Twice": 1}
    assert step.nodes == 6
    assert step.functions == {"edgeopt::Twice": 2}
    assert step.opsets == {"ai.onnx": 20, "edgeopt": 1}
    assert step.bytes == len(bundle.graphs["step.onnx"])


def test_the_report_is_plain_json(bundle):
    document = bundle.inspect().to_dict()
    assert json.loads(json.dumps(document)) == document
    assert document["inputs"] == [{"name": "x", "kind": "model", "dtype": "float32", "shape": ["n"]}]
    assert document["hyperparameters"][0]["name"] == "schedule.lr"
    assert document["graphs"][1]["nodes"] == 6
    assert document["minimum_onnxruntime"] == "1.17.0"


def test_the_package_is_imported_without_onnx_and_torch():
    code = "import sys, edgeopt.bundle; print([name for name in ('onnx', 'onnx_ir', 'torch') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("content", [b"\xff" * 9, b":\x02\xff\xff", b"hello"])
def test_a_graph_that_is_none_is_refused(bundle, content):
    with pytest.raises(GraphError, match="predict is no ONNX model"):
        inspect(bundle.manifest, {**bundle.graphs, "predict.onnx": content})
