"""Frozen weights in few bits, in the graphs: what they compute, what they keep, and what trains beside them."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import edgeopt
from edgeopt.adapters import LoRA
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import SGD, AdamW
from edgeopt_runtime import StateError, TrainingSession

NARROW = ("float16", "int8", "int4", "nf4")


class Text(torch.nn.Module):
    """A tied embedding, linear layers, and a product with a matrix as it is."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(100, 64)
        self.first = torch.nn.Linear(64, 64)
        self.wide = torch.nn.Linear(64, 128)
        self.matrix = torch.nn.Parameter(torch.randn(128, 64) / 11)
        self.head = torch.nn.Linear(64, 3)

    def forward(self, x):
        h = torch.tanh(self.wide(torch.tanh(self.first(self.embedding(x)))))
        return self.head(torch.tanh(h @ self.matrix).mean(1))


class Images(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(16)
        self.second = torch.nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.up = torch.nn.ConvTranspose2d(32, 16, 3)
        self.head = torch.nn.Linear(16, 3)

    def forward(self, x):
        h = torch.relu(self.norm(self.first(x)))
        return self.head(torch.relu(self.up(torch.relu(self.second(h)))).mean((2, 3)))


X = torch.from_numpy(np.random.default_rng(0).integers(0, 100, (4, 7)))
Y = np.array([0, 1, 2, 0])


def text():
    torch.manual_seed(0)
    return Text()


def images():
    torch.manual_seed(0)
    return Images().eval()


def export(model, x, trainable, kind, optimizer=None, **settings):
    return edgeopt.export(
        model,
        x,
        loss=edgeopt.losses.CrossEntropy(),
        optimizer=optimizer or SGD(lr=0.1),
        trainable=trainable,
        frozen_weights=kind,
        verbose=False,
        **settings,
    )


def operators(bundle, name="step"):
    return [node.op_type for node in onnx.load_model_from_string(bundle.contents().graphs[f"{name}.onnx"]).graph.node]


@pytest.mark.parametrize("kind", NARROW)
def test_steps_are_those_of_the_model_with_the_decoded_weights(kind):
    # `first` trains below narrow weights, whose gradients pass through them.
    bundle = export(text(), X, ["first.*", "head.*"], kind)
    session = bundle.session()
    plain = text()
    plain.load_state_dict({name: torch.from_numpy(array) for name, array in session.parameters().items()})
    for name, parameter in plain.named_parameters():
        parameter.requires_grad_(name.startswith(("first", "head")))
    optimizer = torch.optim.SGD([p for p in plain.parameters() if p.requires_grad], lr=0.1)
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(plain(X), torch.from_numpy(Y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert session.step(X.numpy(), Y)["loss"] == pytest.approx(loss.item(), rel=1e-5)
    for name, parameter in plain.named_parameters():
        np.testing.assert_allclose(session.parameters()[name], parameter.detach().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", NARROW)
def test_a_bundle_is_smaller_and_says_what_it_lost(kind):
    wide, narrow = (export(text(), X, "head.*", one) for one in ("float32", kind))
    stored = {spec.name: spec for spec in narrow.manifest.tensors}
    assert len(narrow.to_bytes()) < len(wide.to_bytes()) - 0.4 * sum(
        stored[name].nbytes for name in ("embedding.weight", "first.weight", "wide.weight", "matrix")
    )
    (said,) = [decision for decision in narrow.decisions if decision.kind == "stored"]
    assert f"4 frozen weight(s) are stored as {kind}" in said.text
    assert any(decision.kind == "checked" for decision in narrow.decisions)
    # Small tensors and those that train stay as they are.
    large = {"embedding.weight", "first.weight", "wide.weight", "matrix"}
    assert {entry.name for entry in narrow.manifest.encoded} == large
    assert stored["head.weight"].constant is None
    assert stored["first.bias"].constant == "initializer"


def test_float32_leaves_the_graphs_as_they_are():
    model, x = text(), X
    everything = export(model, x, None, "float32")
    assert not everything.manifest.constants
    some = export(model, x, "head.*", "float32")
    assert {spec.name for spec in some.manifest.constants} == {
        name for name, _ in model.named_parameters() if not name.startswith("head")
    }


@pytest.mark.parametrize("kind", NARROW)
def test_rows_are_taken_before_they_are_decoded(kind):
    bundle = export(text(), X, "head.*", kind)
    model = onnx.load_model_from_string(bundle.contents().graphs["predict.onnx"])
    readers = [node for node in model.graph.node if "embedding.weight.codes" in node.input]
    assert [node.op_type for node in readers] == ["Gather"]


@pytest.mark.parametrize("kind", NARROW)
def test_the_backward_pass_decodes_again(kind):
    bundle = export(text(), X, ["first.*", "head.*"], kind)
    graph = onnx.load_model_from_string(bundle.contents().graphs["step.onnx"]).graph
    for name in ("matrix", "wide.weight"):
        # One for the forward pass; the other waits for a gradient.
        assert len([node for node in graph.node if f"{name}.codes" in node.input]) == 2
    # Below what trains no gradient is wanted.
    assert len([node for node in graph.node if "embedding.weight.codes" in node.input]) == 1


@pytest.mark.parametrize("places", ["auto", "inputs", "initializers"])
@pytest.mark.parametrize("kind", NARROW)
def test_convolutions(kind, places):
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    bundle = export(images(), x, "head.*", kind)
    entries = {entry.name for entry in bundle.manifest.encoded}
    assert entries == {"second.weight", "up.weight"}
    specs = {spec.name: spec for spec in bundle.manifest.tensors}
    # Decoded for good when a session opens, which lays kernels out anew anyway.
    assert all(specs[f"{name}.codes"].constant == "initializer" for name in entries)
    usual, other = bundle.session(constants="inputs"), bundle.session(constants=places)
    for _ in range(3):
        y = Y[:2]
        assert other.step(x.numpy(), y)["loss"] == pytest.approx(usual.step(x.numpy(), y)["loss"], rel=1e-5)


@pytest.mark.parametrize("kind", ["float32", *NARROW])
def test_qlora(kind, tmp_path):
    bundle = export(text(), X, "head.*", kind, AdamW(lr=0.02), adapters=LoRA(4, targets=["first", "wide", "embedding"]))
    session = bundle.session()
    losses = [session.step(X.numpy(), Y)["loss"] for _ in range(8)]
    assert losses[-1] < 0.8 * losses[0]
    expected = session.predict(X.numpy())
    for merge in (True, False):
        session.export_inference(tmp_path / "model.onnx", merge=merge)
        found = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"x": X.numpy()})[0]
        np.testing.assert_allclose(found, expected, atol=1e-5)
    session.save(tmp_path / "mine.edgeopt")
    assert TrainingSession.load(tmp_path / "mine.edgeopt").step(X.numpy(), Y) == session.step(X.numpy(), Y)


@pytest.mark.parametrize("kind", NARROW)
def test_weights_go_out_and_in_by_their_names(kind):
    model = text()
    bundle = export(model, X, "head.*", kind)
    session = bundle.session()
    names = {name for name, _ in model.named_parameters()}
    assert session.parameters().keys() == names
    assert not session.buffers()
    first = session.predict(X.numpy())
    torch.manual_seed(1)
    session.load_parameters(Text().state_dict())
    assert not np.allclose(session.predict(X.numpy()), first)
    session.load_parameters(model.state_dict())
    np.testing.assert_array_equal(session.predict(X.numpy()), first)
    with pytest.raises(StateError, match="NaN"):
        session.load_parameters({"matrix": np.full((128, 64), np.nan, np.float32)})


def test_another_optimizer_keeps_them():
    bundle = export(text(), X, ["first.*", "head.*"], "nf4")
    other = bundle.with_optimizer(AdamW(lr=0.01)).bundle
    assert other.manifest.encoded == bundle.manifest.encoded
    np.testing.assert_array_equal(other.session().predict(X.numpy()), bundle.session().predict(X.numpy()))
    losses = [loss for session in [other.session()] for loss in [session.step(X.numpy(), Y)["loss"] for _ in range(5)]]
    assert losses[-1] < losses[0]


def test_less_memory_is_foretold():
    wide, narrow = (export(text(), X, "head.*", kind).estimate(batch=4) for kind in ("float32", "nf4"))
    assert narrow.state < 0.4 * wide.state


@pytest.mark.parametrize("kind", NARROW)
def test_where_constants_are_changes_nothing(kind):
    bundle = export(text(), X, ["first.*", "head.*"], kind)
    one, other = bundle.session(constants="inputs"), bundle.session(constants="initializers")
    for _ in range(3):
        assert one.step(X.numpy(), Y)["loss"] == pytest.approx(other.step(X.numpy(), Y)["loss"], rel=1e-6)


def test_another_word_for_the_format_is_refused():
    with pytest.raises(ConfigurationError, match="float16, int8, int4, nf4"):
        export(text(), X, "head.*", "int3")
