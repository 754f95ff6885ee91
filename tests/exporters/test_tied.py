"""Weights that a model uses under several names, in and out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt import Bundle
from edgeopt_runtime import ManifestError, StateError, TrainingSession
from edgeopt_runtime.parsing import parse_manifest


class Tied(nn.Module):
    """An embedding tied to the output, a buffer under two names, and counts in a BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(5, 4), nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight
        scale = torch.full((4,), 2.0)
        self.register_buffer("scale", scale)
        self.norm.register_buffer("same_scale", scale)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.embedding(tokens)) * self.scale)


TOKENS = torch.arange(4)


@pytest.fixture(scope="module")
def model() -> Tied:
    torch.manual_seed(0)
    return Tied()


@pytest.fixture(scope="module")
def bundle(model: Tied) -> Bundle:
    return edgeopt.export(model, TOKENS, loss="cross_entropy", optimizer="sgd:lr=0.1", verbose=False)


@pytest.fixture
def session(bundle: Bundle, tmp_path: Any) -> TrainingSession:
    bundle.save(tmp_path / "tied.edgeopt")
    return TrainingSession(tmp_path / "tied.edgeopt")


def test_weights_go_back_under_every_name(model: Tied, session: TrainingSession) -> None:
    session.step(TOKENS, TOKENS)
    weights = {**session.parameters(), **session.buffers()}
    other = Tied()
    other.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    expected = other.eval()(TOKENS).detach().numpy()
    np.testing.assert_allclose(np.asarray(session.predict(TOKENS.numpy())), expected, rtol=1e-5, atol=1e-6)
    assert other.norm.num_batches_tracked == 1


@pytest.mark.parametrize("addition", ["", "module.", "_orig_mod.", "module._orig_mod."])
def test_weights_come_in_as_pytorch_gives_them(session: TrainingSession, addition: str) -> None:
    torch.manual_seed(1)
    other = Tied().eval()
    session.load_parameters({addition + name: tensor for name, tensor in other.state_dict().items()})
    expected = other(TOKENS).detach().numpy()
    np.testing.assert_allclose(np.asarray(session.predict(TOKENS.numpy())), expected, rtol=1e-5, atol=1e-6)
    session.load_parameters(dict(Tied().named_parameters()))  # with gradients
    session.load_parameters({"head.weight": np.zeros((5, 4), np.float32)})  # by its second name alone
    assert not session.parameters()["embedding.weight"].any()


def test_one_tensor_has_one_value(session: TrainingSession) -> None:
    before = session.parameters()
    values = {"embedding.weight": np.zeros((5, 4), np.float32), "head.weight": np.ones((5, 4), np.float32)}
    with pytest.raises(StateError, match=r"`head.weight` and `embedding.weight` are one tensor of this model"):
        session.load_parameters(values)
    np.testing.assert_array_equal(session.parameters()["head.weight"], before["head.weight"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"module.nothing": np.zeros(3)}, "no parameter or buffer `module.nothing`"),
        ({"norm.weight": torch.zeros(4, dtype=torch.int32)}, r"must be float32 of shape \[4\], but .* is int32"),
        ({"norm.weight": torch.zeros(3)}, r"must be float32 of shape \[4\]"),
        (list(Tied().parameters()), "given by name, as in `model.state_dict"),
    ],
)
def test_weights_that_do_not_fit_are_refused(session: TrainingSession, given: Any, message: str) -> None:
    with pytest.raises(StateError, match=message):
        session.load_parameters(given)


def test_another_optimizer_keeps_the_names(bundle: Bundle) -> None:
    other = bundle.with_optimizer("adamw:lr=0.01").bundle
    assert other.manifest.aliases == bundle.manifest.aliases
    assert set(other.session().parameters()) == {name for name, _ in Tied().named_parameters(remove_duplicate=False)}


@pytest.mark.parametrize(
    ("aliases", "message"),
    [
        ('{"head.weight": "nothing"}', "there is no 'nothing' among them"),
        ('{"head.weight": "optimizer.step"}', "is no other name of a parameter or buffer"),
        ('{"norm.weight": "embedding.weight"}', "is the name of another tensor"),
        ('{"": "embedding.weight"}', "printable name"),
        ('["head.weight"]', "an object"),
    ],
)
def test_aliases_that_lead_nowhere_are_refused(bundle: Bundle, aliases: str, message: str) -> None:
    text = bundle.manifest.to_json()
    start = text.index('"aliases": ') + len('"aliases": ')
    end = text.index("}", start) + 1
    with pytest.raises(ManifestError, match=message):
        parse_manifest(text[:start] + aliases + text[end:])
