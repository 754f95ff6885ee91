"""SOFO in a bundle: slopes and curvature along directions, against forward mode in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import functional

import edgeopt
from edgeopt import Bundle
from edgeopt.losses import MSE, CrossEntropy
from edgeopt.optimizers import SGD, SOFO, Group


class Recurrent(nn.Module):
    """A small recurrent network, unrolled, as in the paper."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3 + 4, 4)
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 4)
        for t in range(3):
            h = torch.tanh(self.inner(torch.cat([x[:, t], h], 1)))
        return self.last(h)


@pytest.fixture
def batches() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.normal(size=(6, 3, 3)), "target": rng.integers(0, 3, 6)} for _ in range(4)]


def export(rule: Any, loss: Any = None) -> Bundle:
    torch.manual_seed(0)
    model = Recurrent().double()
    return edgeopt.export(model, torch.zeros(2, 3, 3).double(), loss=loss or CrossEntropy(), optimizer=rule, seed=5)


def gauss_newton(model: nn.Module, batch: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """The Gauss-Newton matrix and the gradient of the mean loss, over all parameters as one vector."""
    params = {name: param.detach() for name, param in model.named_parameters()}
    names = list(params)
    x, target = torch.tensor(batch["x"]), torch.tensor(batch["target"])

    def output(flat: torch.Tensor) -> torch.Tensor:
        parts = flat.split([params[name].numel() for name in names])
        own = {name: part.reshape(params[name].shape) for name, part in zip(names, parts, strict=True)}
        return torch.func.functional_call(model, own, (x,))

    flat = torch.cat([params[name].reshape(-1) for name in names])
    logits = output(flat)

    def loss(y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(y.reshape(logits.shape), target)

    jacobian = functional.jacobian(output, flat).reshape(-1, flat.numel())
    hessian, slope = (of(loss, logits.reshape(-1)) for of in (functional.hessian, functional.jacobian))
    return (jacobian.T @ hessian @ jacobian).numpy(), (jacobian.T @ slope).numpy(), names


def test_a_step_solves_the_damped_system_of_its_subspace(batches):
    """Whatever directions were drawn, the step lies in their span, and there it is the Gauss-Newton step."""
    torch.manual_seed(0)
    model = Recurrent().double()
    count = sum(param.numel() for param in model.parameters())
    session = export(SOFO(0.5, tangents=6, damping=1e-3)).session()
    before = session.state()
    session.step(batches[0])
    after = session.state()
    matrix, slope, names = gauss_newton(model, batches[0])
    step = np.concatenate([(before[name] - after[name]).reshape(-1) for name in names]) / 0.5
    assert step.shape == (count,)
    # With all but a little damping, the decrease along the step is that of the quadratic model: ⟨s, d⟩ = dᵀ(A + δ)d.
    assert 0 < step @ matrix @ step <= step @ slope
    np.testing.assert_allclose(step @ matrix @ step, step @ slope, rtol=0.05)


def test_with_as_many_directions_as_parameters_it_is_the_newton_step(batches):
    torch.manual_seed(0)
    model = Recurrent().double()
    count = sum(param.numel() for param in model.parameters())
    session = export(SOFO(1.0, tangents=3 * count, damping=1e-6)).session()
    before = session.state()
    session.step(batches[0])
    after = session.state()
    matrix, slope, names = gauss_newton(model, batches[0])
    step = np.concatenate([(before[name] - after[name]).reshape(-1) for name in names])
    # Where the model bends, the step is A⁺·s there; flat directions of A do not count.
    np.testing.assert_allclose(matrix @ step, slope, atol=2e-3 * np.abs(slope).max())


@pytest.mark.parametrize("parts", [(slice(0, 6),), (slice(0, 4), slice(4, 6))], ids=["one", "two"])
def test_microbatches_see_the_same_directions(batches, parts):
    whole, split = export(SOFO(tangents=5)).session(), export(SOFO(tangents=5)).session()
    for batch in batches:
        whole.step(batch)
        for part in parts:
            split.accumulate({name: value[part] for name, value in batch.items()})
        split.apply()
    state = split.state()
    for name in ("inner.weight", "inner.bias", "last.weight", "last.bias"):
        np.testing.assert_allclose(state[name], whole.state()[name], rtol=1e-9, atol=1e-12)


def test_updates_draw_other_directions_and_resume_goes_on(batches, tmp_path):
    session = export(SOFO(tangents=5)).session()
    weights = [session.state()["inner.weight"]]
    for _ in range(2):
        session.step(batches[0])
        weights.append(session.state()["inner.weight"])
    first, second = weights[1] - weights[0], weights[2] - weights[1]
    cosine = np.sum(first * second) / np.linalg.norm(first) / np.linalg.norm(second)
    assert abs(cosine) < 0.9
    session.save(tmp_path / "half.edgeopt")
    resumed = Bundle.load(tmp_path / "half.edgeopt").session()
    for each in (session, resumed):
        each.step(batches[1])
    np.testing.assert_array_equal(resumed.state()["inner.weight"], session.state()["inner.weight"])


def test_groups_look_along_their_own_parameters(batches):
    groups = [Group("last.*", optimizer=SGD(0.1)), SOFO(0.1, tangents=8, damping=1e-2)]
    session = export(groups).session()
    losses = [session.step(batches[0])["loss"] for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]


def test_it_fits_a_regression(batches):
    batch = {"x": batches[0]["x"], "target": np.random.default_rng(1).normal(size=(6, 3))}
    session = export(SOFO(0.5, tangents=30, damping=1e-4), MSE()).session()
    losses = [session.step(batch)["loss"] for _ in range(60)]
    assert losses[-1] < 0.05 * losses[0]
