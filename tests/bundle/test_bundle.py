from __future__ import annotations

import numpy as np
import onnx
import onnx_ir
import pytest

from edgeopt.bundle import Bundle
from edgeopt_runtime import BundleError, ProviderError, StateError, TrainingSession


@pytest.mark.parametrize("name", ["gain.edgeopt", "gain"])
def test_what_is_saved_is_loaded(bundle, tmp_path, name):
    bundle.save(tmp_path / name)
    loaded = Bundle.load(tmp_path / name)
    assert loaded.graphs == bundle.graphs
    assert loaded.manifest.tensors == bundle.manifest.tensors
    assert loaded.state["gain"] == 3
    assert set(loaded.manifest.files) == {"step.onnx", "predict.onnx", "state.safetensors"}


def test_bytes_are_those_of_the_file(bundle, tmp_path):
    bundle.save(tmp_path / "gain.edgeopt")
    assert bundle.to_bytes() == (tmp_path / "gain.edgeopt").read_bytes()
    assert Bundle.load(bundle.to_bytes()).to_bytes() == bundle.to_bytes()


def test_graphs_may_be_models_of_either_library(manifest, models, bundle):
    as_ir = {name: onnx_ir.from_proto(model) for name, model in models.items()}
    as_bytes = {name: model.SerializeToString() for name, model in models.items()}
    for graphs in (as_ir, as_bytes):
        other = Bundle(manifest, graphs, bundle.state)
        assert all(isinstance(graph, bytes) for graph in other.graphs.values())
        np.testing.assert_array_equal(np.asarray(other.session().predict(np.ones(2, np.float32))), [3, 3])


def test_later_changes_to_a_model_have_no_effect(manifest, models, bundle):
    before = dict(bundle.graphs)
    models["step.onnx"].graph.name = "changed"
    assert bundle.graphs == before


def test_a_session_trains_a_copy(bundle):
    session = bundle.session(threads=1)
    assert isinstance(session, TrainingSession)
    assert session.step({"x": np.array([1, 2], np.float32)}) == {"loss": 2.0}
    np.testing.assert_array_equal(session.predict(np.ones(1, np.float32)), [6])
    assert bundle.state["gain"] == 3
    with pytest.raises(ProviderError):
        bundle.session(providers=["NoSuchProvider"])


def test_a_session_saves_what_bundles_load(bundle, tmp_path):
    session = bundle.session()
    session.step((np.ones(1, np.float32),))
    session.set_hyper(lr=0.25)
    session.save(tmp_path / "gain.edgeopt")
    loaded = Bundle.load(tmp_path / "gain.edgeopt")
    assert loaded.state["gain"] == 6
    assert loaded.manifest.hyperparameters[0].default == 0.25
    assert loaded.graphs == bundle.graphs


def test_errors_are_those_of_the_runtime(bundle, tmp_path):
    with pytest.raises(BundleError):
        Bundle.load(tmp_path / "nothing.edgeopt")
    with pytest.raises(StateError, match="no array for the tensor `optimizer"):
        Bundle(bundle.manifest, bundle.graphs, {}).save(tmp_path / "gain.edgeopt")


def test_saved_graphs_are_onnx_models(bundle, tmp_path):
    bundle.save(tmp_path / "gain")
    for name in ("step.onnx", "predict.onnx"):
        onnx.checker.check_model(onnx.load(tmp_path / "gain" / name), full_check=True)


def test_the_representation_is_a_line(bundle):
    assert repr(bundle) == (
        "Bundle(parameters: 1, trainable: 1; state: 2 tensors of 12 bytes; batch: `x float32 ['n']`; "
        "graphs: predict, step)"
    )
