from __future__ import annotations

import json

import numpy as np
import onnx
import onnxruntime
import pytest

from edgeopt.errors import ParameterPatternError

BATCH = 256


def feeds(batch=BATCH, depth=16, width=8):
    random = np.random.default_rng(0)
    weights = {f"w{i}": random.standard_normal((width, width)).astype(np.float32) / 3 for i in range(depth)}
    x = random.standard_normal((batch, width)).astype(np.float32)
    return {"x": x, "seed": np.asarray(3), "draws": np.asarray(4), **weights}


def run(model, batch=BATCH):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds(batch))


def order_and_sizes(model, tmp_path):
    """In which order ONNX Runtime runs the nodes, and the bytes of each tensor."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    session.run(None, feeds())
    with open(session.end_profiling()) as file:
        events = [e["name"] for e in json.load(file) if e["name"].endswith("_kernel_time")]
    order = {name.removesuffix("_kernel_time"): i for i, name in enumerate(events)}
    order.update((node.name, -1) for node in model.graph.node if node.op_type == "Constant")

    everything = onnx.ModelProto.FromString(model.SerializeToString())
    known = {value.name for value in everything.graph.output}
    names = [name for node in everything.graph.node for name in node.output if name and name not in known]
    everything.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    probe = onnxruntime.InferenceSession(everything.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs = [output.name for output in probe.get_outputs()]
    return order, {name: value.nbytes for name, value in zip(outputs, probe.run(None, feeds()), strict=True)}


@pytest.mark.parametrize("what", ["auto", ["block.*"], ["block.2", "block.3", "block.1?"]])
@pytest.mark.parametrize("join", [False, True])
def test_the_results_are_the_same_bits(deep, what, join):
    plain, recomputed = deep(join=join), deep(what, join=join)
    onnx.checker.check_model(recomputed.model, full_check=True)
    assert len(recomputed.model.graph.node) > len(plain.model.graph.node)
    for batch in (1, 7):
        for expected, result in zip(run(plain.model, batch), run(recomputed.model, batch), strict=True):
            np.testing.assert_array_equal(result, expected)


def test_most_of_the_memory_is_saved_in_the_order_in_which_the_runtime_works(deep, peak_bytes, tmp_path):
    plain, automatic, named = (deep(what) for what in (None, "auto", ["block.*"]))
    peaks = []
    for network in (plain, automatic, named):
        order, sizes = order_and_sizes(network.model, tmp_path)
        peaks.append(peak_bytes(network.graph, sizes, order))
    # Sixteen blocks in stretches of about four: what is kept between them, and one stretch.
    assert peaks[1] < 0.6 * peaks[0]
    assert peaks[2] < 0.75 * peaks[0]


def test_the_last_stretch_is_not_computed_twice(deep):
    copies = {node.name.split("/")[2] for node in deep("auto").graph if node.name.startswith("recompute/")}
    assert "block.0" in copies
    assert "block.15" not in copies


def test_a_pattern_that_matches_nothing_is_named_with_names_that_exist(deep):
    with pytest.raises(ParameterPatternError, match=r"'layer\.\*' matches no node.*block\.0/"):
        deep(["block.*", "layer.*"])
