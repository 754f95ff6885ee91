"""Weights go from a module into a bundle and back, by every name, into whatever holds the module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import edgeopt
from edgeopt.compat.torch import load_into
from edgeopt_runtime import TrainingSession, WeightsError


class Tied(nn.Module):
    """An embedding that is the output layer too, a normalisation with buffers, and a layer that is frozen."""

    def __init__(self, classes: int = 7) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, 4)
        self.frozen = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.output = nn.Linear(4, classes, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.output(self.norm(torch.tanh(self.frozen(self.embedding(ids)))))


IDS = np.arange(12) % 7
BATCH = (IDS, (IDS + 1) % 7)


@pytest.fixture(scope="module")
def bundle() -> edgeopt.Bundle:
    torch.manual_seed(0)
    return edgeopt.export(
        Tied(),
        (torch.from_numpy(IDS[:4]),),
        loss="cross_entropy",
        optimizer=edgeopt.optimizers.SGD(0.5),
        trainable=["embedding.*", "norm.*"],
    )


@pytest.fixture(scope="module")
def session(bundle) -> TrainingSession:
    session = bundle.session()
    for _ in range(5):
        session.step(BATCH)
    return session


def outputs(session: TrainingSession, x: Any = IDS) -> Any:
    return session.predict(x)


def predictions(module: nn.Module) -> Any:
    with torch.no_grad():
        return module.eval()(torch.from_numpy(IDS)).numpy()


class Distributed(nn.Module):
    """What DataParallel and DistributedDataParallel make of names."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.module(ids)


@pytest.mark.parametrize("wrap", [lambda m: m, Distributed, torch.compile, lambda m: torch.compile(Distributed(m))])
@pytest.mark.parametrize("kind", ["session", "path", "file"])
def test_a_module_computes_what_the_session_does(session, tmp_path, wrap, kind):
    session.save(tmp_path / "saved.edgeopt")
    session.save_weights(tmp_path / "saved.safetensors")
    source = {"session": session, "path": tmp_path / "saved.edgeopt", "file": tmp_path / "saved.safetensors"}[kind]
    module = Tied()
    held = module.embedding.weight
    report = load_into(wrap(module), source)
    assert report.complete
    assert module.output.weight is module.embedding.weight is held
    np.testing.assert_allclose(predictions(module), outputs(session), atol=1e-6)


def test_a_bundle_takes_the_weights_of_a_module(bundle, tmp_path):
    torch.manual_seed(1)
    module = Tied()
    safetensors.torch.save_model(module, str(tmp_path / "model.safetensors"))
    expected = predictions(module)
    for source in (module, module.state_dict(), tmp_path / "model.safetensors", bundle.load_weights(module)):
        changed = bundle.load_weights(source)
        np.testing.assert_allclose(outputs(changed.session()), expected, atol=1e-6)
    before = outputs(bundle.session())
    assert not np.allclose(before, expected, atol=1e-3)  # the bundle itself is as it was
    again = edgeopt.Bundle.load(changed.to_bytes()).session()
    np.testing.assert_allclose(outputs(again), expected, atol=1e-6)


def test_training_goes_on_with_the_same_weights(bundle, session):
    module = Tied()
    load_into(module, session)
    changed = bundle.load_weights(module).session()
    assert changed.evaluate(BATCH)["loss"] == pytest.approx(session.evaluate(BATCH)["loss"], abs=1e-6)


def test_all_that_differs_is_listed_and_nothing_changes(session):
    module = Tied(classes=5).half()
    module.extra = nn.Linear(2, 2)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.raises(WeightsError) as caught:
        load_into(module, session)
    report = caught.value.report
    assert report.missing == ("extra.weight", "extra.bias")
    assert report.shapes == {"embedding.weight": ((7, 4), (5, 4))}
    assert {"frozen.weight", "frozen.bias"} <= report.dtypes.keys()
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    other = Tied(classes=5)
    report = load_into(other, session, strict=False)
    assert {"frozen.weight", "norm.running_mean"} <= set(report.loaded)
    np.testing.assert_array_equal(other.frozen.weight.detach(), session.parameters()["frozen.weight"])


def test_a_bundle_says_what_did_not_fit(bundle):
    state = {**Tied().state_dict(), "head.weight": torch.zeros(1)}
    with pytest.raises(WeightsError, match=r"unexpected: `head\.weight`"):
        bundle.load_weights(state)
    with pytest.warns(UserWarning, match=r"unexpected: `head\.weight`"):
        bundle.load_weights(state, strict=False)


def test_a_module_of_bfloat16_gets_what_it_can_hold(session):
    module = Tied().bfloat16()
    state = {name: value.bfloat16().float() for name, value in Tied().state_dict().items() if value.is_floating_point()}
    state["norm.num_batches_tracked"] = torch.tensor(3)
    assert load_into(module, state).complete
    assert module.embedding.weight.dtype == torch.bfloat16
    np.testing.assert_array_equal(module.embedding.weight.detach().float(), state["output.weight"])
    with pytest.raises(WeightsError, match=r"`frozen\.weight` float32 in place of bfloat16"):
        load_into(module, session)


def test_averages_are_what_a_module_gets():
    bundle = edgeopt.export(
        nn.Linear(3, 2),
        (torch.ones(2, 3),),
        loss="mse",
        optimizer=edgeopt.optimizers.Averaged(edgeopt.optimizers.SGD(0.3)),
    )
    session, x = bundle.session(), np.eye(3, dtype=np.float32)
    for _ in range(3):
        session.step((x, x[:, :2]))
    evaluated, trained = nn.Linear(3, 2), nn.Linear(3, 2)
    load_into(evaluated, session)
    load_into(trained, session, view="trained")
    with torch.no_grad():
        np.testing.assert_allclose(evaluated(torch.from_numpy(x)).numpy(), outputs(session, x), atol=1e-6)
    np.testing.assert_array_equal(trained.weight.detach(), session.parameters()["weight"])
    assert not torch.allclose(trained.weight, evaluated.weight)
