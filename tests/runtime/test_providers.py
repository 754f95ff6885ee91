from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from edgeopt_runtime import (
    ExecutionError,
    GraphError,
    ProviderError,
    StateError,
    TrainingSession,
    UnsupportedVersionError,
    pack_bundle,
    providers,
)
from edgeopt_runtime.providers import Options


def test_a_provider_that_is_not_there_lists_those_that_are(packed):
    with pytest.raises(ProviderError, match=r"CUDAExecutionProvider is not part.*Available: .*CPUExecutionProvider"):
        TrainingSession.load(packed, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    with pytest.raises(ProviderError, match="NoSuchProvider"):
        TrainingSession.load(packed, providers=[("NoSuchProvider", {"device": 0})])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"providers": []}, r"\(none\)"),
        ({"provider_options": [{}, {}]}, "1 providers, but options for 2"),
        ({"threads": 0}, "at least 1"),
        ({"threads": True}, "at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(packed, options, words):
    with pytest.raises(ProviderError, match=words):
        TrainingSession.load(packed, **options)


def test_options_reach_onnxruntime(contents, monkeypatch):
    opened = []
    real = providers.QuietSession

    def record(graph, settings, **options):
        opened.append((settings, options))
        return real(graph, settings, **options)

    monkeypatch.setattr(providers, "QuietSession", record)
    options = Options(("CPUExecutionProvider",), [{"some": "option"}], threads=3, deterministic=True)
    options.open("predict.onnx", contents.graphs["predict.onnx"])
    ((settings, given),) = opened
    assert settings.intra_op_num_threads == 3
    assert settings.use_deterministic_compute
    assert settings.inter_op_num_threads == 1
    assert given["providers"] == ["CPUExecutionProvider"]
    assert given["provider_options"] == [{"some": "option"}]


def test_what_fails_to_open_is_not_printed_and_not_tried_twice(contents, monkeypatch, capfd):
    tried = []

    def fail(*_: object, **__: object) -> None:
        tried.append(1)
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(onnxruntime.InferenceSession, "_create_inference_session", fail)
    with pytest.raises(RuntimeError, match="no such kernel"):
        providers.QuietSession(contents.graphs["predict.onnx"], providers=["CPUExecutionProvider"])
    assert tried == [1]
    assert capfd.readouterr() == ("", "")


def test_graphs_are_opened_when_they_are_needed(packed, monkeypatch, make_batches):
    opened = []
    real = Options.open

    def watched(self, file, graph, *others):
        opened.append(file)
        return real(self, file, graph, *others)

    monkeypatch.setattr(Options, "open", watched)
    session = TrainingSession.load(packed)
    (batch,) = make_batches(2)
    assert opened == []
    session.predict(batch)
    session.predict(batch)
    assert opened == ["predict.onnx"]
    session.step(batch)
    assert opened == ["predict.onnx", "step.onnx"]


def test_steps_do_not_depend_on_how_buffers_are_bound(packed, make_batches, monkeypatch):
    # With a provider that has memory of its own, everything is bound anew in each run. The CPU can play such a one.
    usual = TrainingSession.load(packed, threads=1)
    monkeypatch.setattr(Options, "cpu_only", property(lambda self: False))
    rebound = TrainingSession.load(packed, threads=1)
    for index, batch in enumerate(make_batches(4, 5, 6, 4)):
        for session in (usual, rebound):
            session.set_hyper(lr=0.1 / (index + 1))
        assert usual.step(batch) == rebound.step(batch)
        assert usual.accumulate(batch) == rebound.accumulate(batch)
        assert usual.apply() == rebound.apply()
        assert usual.evaluate(batch) == rebound.evaluate(batch)
    for name, array in usual.state().items():
        assert array.tobytes() == rebound.state()[name].tobytes(), name


def test_a_missing_graph_is_named(contents):
    signatures = {"predict": contents.manifest.signatures["predict"]}
    manifest = replace(contents.manifest, signatures=signatures)
    packed = pack_bundle(manifest, {"predict.onnx": contents.graphs["predict.onnx"]}, contents.state)
    session = TrainingSession.load(packed)
    for call in (lambda: session.step({}), lambda: session.evaluate({}), session.apply):
        with pytest.raises(StateError, match=r"The bundle has no \w+ graph; it has predict"):
            call()


def changed(contents, change) -> TrainingSession:
    """A session whose predict graph has been changed."""
    model = onnx.load_model_from_string(contents.graphs["predict.onnx"])
    change(model)
    graphs = {**contents.graphs, "predict.onnx": model.SerializeToString()}
    return TrainingSession.load(pack_bundle(contents.manifest, graphs, contents.state))


def _rename_input(model):
    model.graph.input[3].name = "z"
    model.graph.node[0].input[0] = "z"


def _retype_input(model):
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE


def _reshape_input(model):
    model.graph.input[3].type.tensor_type.shape.dim[1].dim_value = 4
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4


def _unknown_operator(model):
    model.graph.node[0].op_type = "Frobnicate"


def _external_tensor(model):
    tensor = numpy_helper.from_array(np.ones(2, np.float32), "stolen")
    onnx.external_data_helper.set_external_data(tensor, location="/etc/passwd")
    model.graph.initializer.append(tensor)


def _newer_opset(model):
    model.opset_import[0].version = 999


def _newer_ir(model):
    model.ir_version = 999


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (_rename_input, GraphError, r"only in the manifest: \['x'\], only in the graph: \['z'\]"),
        (_retype_input, GraphError, r"`weight` is tensor\(double\).* the manifest says float32"),
        (_reshape_input, GraphError, r"`weight` is tensor\(float\) of shape \[4, 2\].*\[3, 2\]"),
        (_unknown_operator, GraphError, "refuses predict.onnx: .*Frobnicate"),
        (_external_tensor, GraphError, "predict.onnx has tensors in other files"),
        (_newer_opset, UnsupportedVersionError, "predict.onnx needs a newer ONNX Runtime"),
        (_newer_ir, UnsupportedVersionError, "predict.onnx needs a newer ONNX Runtime"),
    ],
)
def test_graphs_that_differ_from_their_signature_are_refused(contents, make_batches, change, error, words):
    session = changed(contents, change)
    with pytest.raises(error, match=words):
        session.predict(make_batches(2)[0])


def test_a_run_that_fails_leaves_the_state_alone(contents, make_batches):
    def add_four_rows(model):
        model.graph.initializer.append(numpy_helper.from_array(np.zeros((4, 2), np.float32), "rows"))
        model.graph.node[-1].output[0] = "plain"
        model.graph.node.append(helper.make_node("Add", ["plain", "rows"], ["y"]))

    session = changed(contents, add_four_rows)
    four, five = make_batches(4, 5)
    expected = session.predict(four)
    with pytest.raises(ExecutionError, match=r"failed while running predict\.onnx"):
        session.predict(five)
    np.testing.assert_array_equal(session.predict(four), expected)
