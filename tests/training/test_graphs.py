"""What the graphs of a bundle are: ordinary ONNX that every stock runtime accepts."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from edgeopt.optimizers import AdamW
from edgeopt.transforms import ClipByGlobalNorm


@pytest.fixture(scope="module")
def bundle(case: Any) -> Any:
    # A large eps keeps the key biases of attention, whose gradient is rounding noise, from being scaled up.
    return case.export(case.module(), optimizer=AdamW(lr=1e-2, eps=1e-4), transforms=[ClipByGlobalNorm(1.0)])


def test_graphs_are_plain_onnx(bundle: Any) -> None:
    names = ("step", "accumulate", "apply", "evaluate", "predict", "reset", "summary")
    assert set(bundle.graphs) == {f"{name}.onnx" for name in names}
    for name, content in bundle.graphs.items():
        model = onnx.load_from_string(content)
        onnx.checker.check_model(model, full_check=True)
        assert model.ir_version == 9
        assert {entry.domain: entry.version for entry in model.opset_import}[""] == 20
        own = {function.name for function in model.functions}
        for node in model.graph.node:
            assert node.domain == "" or (node.domain == "edgeopt" and node.op_type in own), f"{name}: {node.op_type}"
        for function in model.functions:
            for node in function.node:
                assert node.domain == "" or node.op_type in own, f"{name}, {function.name}: {node.op_type}"
        assert not model.graph.initializer or max(len(i.raw_data) for i in model.graph.initializer) < 4096
        assert len(content) < 200_000, "weights belong into the state"


def test_no_operator_that_gpu_and_npu_providers_lack(bundle: Any) -> None:
    for content in bundle.graphs.values():
        model = onnx.load_from_string(content)
        nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
        assert not {"OneHot", "LogSoftmax", "NonZero", "Loop", "If", "Scan"} & {node.op_type for node in nodes}
        assert all(len(node.output) == 1 for node in nodes if node.op_type == "MaxPool"), "no Indices"


def test_optimizer_and_clipping_are_one_fused_node_each(bundle: Any) -> None:
    model = onnx.load_from_string(bundle.graphs["step.onnx"])
    names = ("ClipByGlobalNorm", "AdamW")
    calls = [node for node in model.graph.node if node.domain == "edgeopt" and node.op_type in names]
    assert [node.op_type for node in calls] == list(names)
    flags = {attribute.name: attribute.i for attribute in calls[1].attribute}
    assert flags["amsgrad"] == flags["maximize"] == 0, "a native kernel reads its variant from the node"


def test_the_reference_evaluator_agrees_with_onnx_runtime(case: Any, bundle: Any, graph_state: Any) -> None:
    """An independent implementation of ONNX computes the same step."""
    x, y = next(case.batches([5]))
    state = graph_state(bundle.manifest, bundle.state)
    signature = bundle.manifest.signatures["step"]
    hyper = {entry.name: np.asarray(entry.default, entry.dtype) for entry in bundle.manifest.hyperparameters}
    batch = dict(zip([spec.name for spec in bundle.manifest.inputs], (x, y), strict=True))
    feeds = {}
    for port in signature.inputs:
        feeds[port.name] = {"state": state, "hyper": hyper, "batch": batch}[port.kind][port.name]
    evaluator = ReferenceEvaluator(onnx.load_from_string(bundle.graphs["step.onnx"]))
    outputs = dict(zip([port.name for port in signature.outputs], evaluator.run(None, feeds), strict=True))

    session = bundle.session()
    metrics = session.step((x, y))
    assert metrics["loss"] == pytest.approx(float(outputs["loss"]), rel=1e-5)
    after = graph_state(bundle.manifest, session.state())
    for port in signature.outputs:
        if port.kind == "state":
            np.testing.assert_allclose(after[port.tensor], outputs[port.name], atol=2e-5, err_msg=port.tensor)


@pytest.mark.parametrize("size", [1, 7, 32])
def test_one_bundle_takes_every_batch_size(case: Any, bundle: Any, size: int) -> None:
    session = bundle.session()
    (x, y), (x2, y2) = case.batches([size, size + 1])
    assert np.isfinite(session.step((x, y))["loss"])
    assert np.isfinite(session.step((x2, y2))["loss"])
    assert session.predict(x).shape[0] == size


def test_sequence_length_is_symbolic_too(cases: dict[str, Any]) -> None:
    case = cases["decoder"]
    session = case.export(case.module(), optimizer=AdamW(lr=1e-2)).session()
    for length in (1, 4, 12):
        tokens = np.random.default_rng(0).integers(0, 30, (3, length))
        assert np.isfinite(session.step((tokens, tokens))["loss"])
        assert session.predict(tokens).shape == (3, length, 30)
