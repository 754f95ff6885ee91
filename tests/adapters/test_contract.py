"""What holds for every adapter: beside the weight or in it, the same; and a gradient that is the module's own."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import edgeopt
from edgeopt.adapters import ADAPTER, ADAPTERS, IA3, BitFit, DoRA, LastLayers, LayerAdapter, LoRA, SparseUpdate, adapt
from edgeopt.adapters.layers import find_layers
from edgeopt.errors import ConfigurationError, ExportDifferenceError, ParameterPatternError
from edgeopt.optimizers import SGD, AdamW
from edgeopt_exporters.pytorch import from_torch


class Network(torch.nn.Module):
    """Linear layers, convolutions in groups and depthwise, an embedding, one module that is called twice."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(9, 6)
        self.grouped = torch.nn.Conv1d(6, 8, 3, padding=2, dilation=2, groups=2)
        self.depthwise = torch.nn.Conv1d(8, 8, 3, padding=1, groups=8, bias=False)
        self.shared = torch.nn.Linear(8, 8)
        self.inner = torch.nn.Linear(8, 8, bias=False)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x):
        channels = self.grouped(self.embedding(x).transpose(1, 2))
        inner = torch.tanh(self.depthwise(torch.tanh(channels))).transpose(1, 2)
        inner = torch.tanh(self.shared(torch.tanh(self.shared(inner))))
        return self.head(torch.tanh(self.inner(inner)).mean(1))


X = torch.from_numpy(np.random.default_rng(0).integers(0, 9, (5, 7)))
Y = np.array([0, 1, 2, 1, 0])
LINEAR = ("shared", "inner")
CASES: dict[str, Any] = {
    "bitfit": BitFit(),
    "dora": DoRA(4, 6.0, (*LINEAR, "grouped", "embedding")),
    "ia3": IA3((*LINEAR, "grouped", "depthwise"), "inner"),
    "last_layers": LastLayers(2),
    "lora": LoRA(4, 6.0, (*LINEAR, "grouped", "embedding")),
    "sparse_update": SparseUpdate(share=0.5, targets=(*LINEAR, "depthwise")),
}


def network():
    torch.manual_seed(0)
    return Network()


def export(adapters, optimizer=None, **more):
    return edgeopt.export(
        network(), X, loss="cross_entropy", optimizer=optimizer or AdamW(1e-2), adapters=adapters, verbose=False, **more
    )


@cache
def bundle_of(kind):
    """Bundles are never changed, so that one export of each is enough."""
    return export(CASES[kind])


def predictions(path) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: X.numpy()})
    return np.asarray(found)


def test_every_adapter_has_a_row():
    assert CASES.keys() == ADAPTERS.keys()
    assert all(type(CASES[name]) is ADAPTERS[name] and ADAPTERS[name].kind == name for name in CASES)


@pytest.mark.parametrize("kind", CASES)
def test_an_export_begins_at_the_model_is_checked_and_merges_to_the_same(kind, tmp_path):
    bundle = bundle_of(kind)
    assert "checked" in {decision.kind for decision in bundle.decisions}
    session = bundle.session()
    with torch.no_grad():
        np.testing.assert_allclose(np.asarray(session.predict(X.numpy())), network()(X).numpy(), atol=2e-6)
    before = session.state()
    trained = {spec.name for spec in bundle.manifest.tensors if spec.trainable}
    losses = [session.step(X.numpy(), Y)["loss"] for _ in range(20)]
    assert losses[-1] < losses[0]
    parameters = {spec.name for spec in bundle.manifest.tensors if spec.role == "parameter"}
    moved = {name for name in parameters if not np.array_equal(before[name], session.state()[name])}
    assert moved == trained
    for merge in (True, False):
        session.export_inference(tmp_path / "model.onnx", merge=merge)
        np.testing.assert_allclose(predictions(tmp_path / "model.onnx"), session.predict(X.numpy()), atol=1e-5)


@pytest.mark.parametrize("kind", CASES)
def test_a_bundle_resumes_and_adapters_go_from_one_to_another(kind, tmp_path):
    session = bundle_of(kind).session()
    session.step(X.numpy(), Y)
    session.save(tmp_path / "saved.edgeopt")
    session.save_adapters(tmp_path / "adapter")
    again = edgeopt.TrainingSession.load(tmp_path / "saved.edgeopt")
    other = bundle_of(kind).session()
    other.load_adapters(tmp_path / "adapter")
    np.testing.assert_array_equal(other.predict(X.numpy()), session.predict(X.numpy()))
    assert again.step(X.numpy(), Y) == session.step(X.numpy(), Y)


@pytest.mark.parametrize("kind", sorted(name for name in CASES if isinstance(CASES[name], LayerAdapter)))
def test_merging_is_an_array_program_of_any_library(kind):
    """What the graph merges is what numpy and PyTorch merge in double precision."""
    from array_api_compat import numpy as plain
    from array_api_compat import torch as tensors

    forward, _ = from_torch(network(), X)
    adapted = adapt(forward, [CASES[kind]]).model
    assert adapted.merging is not None
    random = np.random.default_rng(1)
    layers = CASES[kind].choose(find_layers(forward))
    adapter = CASES[kind].settled(layers, {each.weight: _weight(forward, each) for each in layers})
    for layer in adapter.choose(find_layers(forward)):
        weight = _weight(forward, layer).astype(np.float64)
        bias = None if layer.bias is None else forward.parameters[layer.bias].astype(np.float64)
        own = {
            name: value + random.standard_normal(value.shape)
            for name, value in adapter.parameters(layer, weight, random).items()
        }
        found, added = adapter.merged(plain, layer, weight, bias, own)
        own_tensors = {name: torch.from_numpy(value) for name, value in own.items()}
        tensor_bias = None if bias is None else torch.from_numpy(bias)
        expected, other = adapter.merged(tensors, layer, torch.from_numpy(weight), tensor_bias, own_tensors)
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12)
        assert found.shape == layer.shape
        if bias is not None:
            np.testing.assert_allclose(added, other.numpy())


def _weight(forward, layer):
    return np.transpose(forward.parameters[layer.weight], layer.order)


def test_no_gradient_of_a_frozen_weight_is_computed():
    """Its shape appears nowhere in the backward pass, and B A is computed nowhere either."""
    model = torch.nn.Sequential(torch.nn.Linear(23, 17), torch.nn.Tanh(), torch.nn.Linear(17, 3))
    bundle = edgeopt.export(
        model, torch.randn(5, 23), loss="cross_entropy", optimizer=SGD(0.1), adapters=LoRA(2), verbose=False
    )
    graph = onnx.shape_inference.infer_shapes(onnx.load_from_string(bundle.contents().graphs["step.onnx"])).graph
    made = {
        tuple(dim.dim_value or dim.dim_param for dim in value.type.tensor_type.shape.dim)
        for value in graph.value_info
        if not any(value.name in node.output and node.op_type == "Transpose" for node in graph.node)
    }
    assert (5, 17) in made or len(made) > 5
    assert made.isdisjoint({(17, 23), (23, 17)})


def test_dropout_of_an_adapter_drops_in_training_only():
    session = export(LoRA(4, 8.0, "inner", dropout=0.5)).session()
    session.load_parameters({"inner.lora_B.weight": np.ones((8, 4), np.float32)})
    losses = {session.evaluate(X.numpy(), Y)["loss"] for _ in range(2)}
    assert len(losses) == 1
    session.set_hyper(lr=0.0)
    drawn = {session.accumulate(X.numpy(), Y)["loss"] for _ in range(3)}
    assert len(drawn) == 3


def test_rows_train_as_under_a_mask():
    """Rows of a weight move as PyTorch moves a weight whose gradient is zero elsewhere."""
    session = export(SparseUpdate(rows={"inner.weight": (1, 4, 6)}, targets="inner"), AdamW(1e-2)).session()
    module = network()
    optimizer = torch.optim.AdamW([module.inner.weight], lr=1e-2, weight_decay=0.0)
    session.set_hyper(weight_decay=0.0)
    mask = torch.zeros(8, 1)
    mask[[1, 4, 6]] = 1.0
    for _ in range(4):
        loss = torch.nn.functional.cross_entropy(module(X), torch.from_numpy(Y))
        optimizer.zero_grad()
        loss.backward()
        module.inner.weight.grad *= mask
        optimizer.step()
        assert session.step(X.numpy(), Y)["loss"] == pytest.approx(loss.item(), rel=2e-6)
    expected = module.inner.weight.detach().numpy()[[1, 4, 6]]
    np.testing.assert_allclose(session.parameters()["inner.rows.weight"], expected, rtol=1e-5, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(
    budget=st.floats(0.2, 40.0),
    share=st.sampled_from([0.25, 0.5, 1.0]),
    criterion=st.sampled_from(["norm", "last", "first"]),
)
def test_rows_keep_to_the_budget(budget, share, criterion):
    forward, layers, weights = FORWARD
    adapter = SparseUpdate(budget, share, criterion).settled(layers, weights)
    sizes = {name: len(rows) * weights[name][0].size for name, rows in adapter.rows.items()}
    assert 20 * sum(sizes.values()) <= 1024 * budget
    for name, rows in adapter.rows.items():
        assert len(set(rows)) == len(rows) <= -(-len(weights[name]) * share // 1)
        if criterion == "norm":
            norms = np.linalg.norm(weights[name].reshape(len(weights[name]), -1), axis=1)
            assert set(np.argsort(-norms, kind="stable")[: len(rows)]) == set(rows)
    assert forward is not None


def _layers():
    forward, _ = from_torch(network(), X)
    layers = [layer for layer in find_layers(forward) if layer.kind != "embedding" and layer.groups in (1, 8)]
    return forward, layers, {layer.weight: _weight(forward, layer) for layer in layers}


FORWARD: Any = _layers()


def test_the_ratio_of_lora_plus_is_a_number_of_the_bundle():
    bundle = export(ADAPTER.build("lora_plus:rank=4"))
    assert bundle.session().hyperparameters["optimizer.lora_B.lr_multiplier"] == 16.0
    slow, fast = export(LoRA(4), SGD(0.1)).session(), export(LoRA(4, learning_rate_ratio=4.0), SGD(0.1)).session()
    for session in (slow, fast):
        session.step(X.numpy(), Y)
    moved = [session.parameters()["inner.lora_B.weight"] for session in (slow, fast)]
    np.testing.assert_allclose(moved[1], 4.0 * moved[0], rtol=1e-6)


def test_words_make_adapters():
    assert ADAPTER.build("lora:rank=8,alpha=16") == LoRA(8, 16)
    assert ADAPTER.build("rslora:rank=4") == LoRA(4, rank_stabilized=True)
    assert ADAPTER.several(["ia3", LoRA]) == (IA3(), LoRA())


class Wrong(LoRA):
    """Merges what it does not compute."""

    def merged(self, xp, layer, weight, bias, own):
        merged, bias = super().merged(xp, layer, weight, bias, own)
        return merged * 1.01, bias


def test_an_adapter_that_merges_something_else_is_refused():
    with pytest.raises(ExportDifferenceError):
        export(Wrong(4, targets="inner"))


@pytest.mark.parametrize(
    ("adapters", "error", "message"),
    [
        (LoRA(4, targets="nothing"), ParameterPatternError, "'nothing' matches no layer"),
        (LoRA(3, targets="grouped"), ParameterPatternError, "2 groups do not divide the rank 3"),
        (IA3("embedding"), ParameterPatternError, "embedding"),
        ([LoRA(4, targets="inner"), IA3("inner")], ConfigurationError, "takes one adapter"),
        (SparseUpdate(memory_kb=0.001), ParameterPatternError, "no row fits"),
        (SparseUpdate(rows={"other": (1,)}), ParameterPatternError, "'other'"),
        ("lora:r=8", ConfigurationError, "rank"),
    ],
)
def test_what_cannot_be_is_refused_in_words(adapters, error, message):
    with pytest.raises(error, match=message):
        export(adapters)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LoRA(0),
        lambda: LoRA(4, alpha=-1.0),
        lambda: LoRA(4, dropout=1.0),
        lambda: LoRA(4, learning_rate_ratio=0.0),
        lambda: LastLayers(0),
        lambda: SparseUpdate(),
        lambda: SparseUpdate(share=0.5, criterion="best"),  # type: ignore[arg-type]  # which is what it is about
    ],
)
def test_numbers_out_of_range_are_refused(make):
    with pytest.raises(ConfigurationError):
        make()


def test_averages_of_adapters_are_what_is_merged(tmp_path):
    """With an optimizer that evaluates averages, merging takes these, as prediction does."""
    session = export(LoRA(4), edgeopt.optimizers.Averaged(AdamW(1e-1))).session()
    for _ in range(5):
        session.step(X.numpy(), Y)
    session.export_inference(tmp_path / "model.onnx")
    np.testing.assert_allclose(predictions(tmp_path / "model.onnx"), session.predict(X.numpy()), atol=1e-5)


def test_another_optimizer_keeps_the_adapters(tmp_path):
    bundle = export(LoRA(4))
    changed = bundle.with_optimizer(SGD(0.1)).bundle
    assert changed.manifest.adapters == bundle.manifest.adapters
    session = changed.session()
    session.step(X.numpy(), Y)
    session.export_inference(tmp_path / "model.onnx")
    np.testing.assert_allclose(predictions(tmp_path / "model.onnx"), session.predict(X.numpy()), atol=1e-5)


def test_recomputation_goes_together_with_adapters():
    plain, again = export(LoRA(4)).session(), export(LoRA(4), recompute="auto").session()
    assert [plain.step(X.numpy(), Y) for _ in range(3)] == [again.step(X.numpy(), Y) for _ in range(3)]


def test_steady_is_without_random_numbers():
    assert LoRA(4, dropout=0.5).steady() == replace(LoRA(4, dropout=0.5), dropout=0.0)
