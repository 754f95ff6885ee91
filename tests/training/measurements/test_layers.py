"""What enters and leaves layers, as a bundle measures it, against hooks in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_compat.torch as xp
import numpy as np
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.bundle import Bundle
from edgeopt.errors import SignatureError
from edgeopt.losses import CrossEntropy
from edgeopt.optimizers import AdaFisher, AdamW, Eva, Group, GroupArrays, Optimizer


class Mixed(nn.Module):
    """Convolutions with strides and groups, a linear layer over positions, one that is used twice."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.grouped = nn.Conv2d(4, 4, 2, groups=2)
        self.twice = nn.Linear(4, 4, bias=False)
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        positions = torch.tanh(self.grouped(torch.tanh(self.first(x)))).flatten(2).transpose(1, 2)
        return self.last(self.twice(torch.tanh(self.twice(positions))).mean(1))


def patches(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """What meets the kernel, as rows."""
    if isinstance(layer, nn.Linear):
        return x.reshape(-1, x.shape[-1])
    assert isinstance(layer, nn.Conv2d)
    parts = x.chunk(layer.groups, 1)
    unfolded = [
        nn.functional.unfold(part, layer.kernel_size, layer.dilation, layer.padding, layer.stride)  # type: ignore[arg-type]  # pairs of numbers
        for part in parts
    ]
    return torch.cat([part.transpose(1, 2).reshape(-1, part.shape[1]) for part in unfolded])


def measured(model: nn.Module, batch: dict[str, Any], *, squared: bool) -> dict[str, dict[str, torch.Tensor]]:
    """By weight, the means along rows and columns; gradients are left in the parameters."""
    entering: dict[str, list[torch.Tensor]] = {}
    leaving: dict[str, list[torch.Tensor]] = {}

    def watch(name: str, layer: nn.Module) -> None:
        def hook(_: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            entering.setdefault(name, []).append(patches(layer, inputs[0].detach()))
            axis = 1 if isinstance(layer, nn.Conv2d) else -1
            output.register_hook(
                lambda grad: leaving.setdefault(name, []).append(grad.movedim(axis, -1).reshape(-1, grad.shape[axis]))
            )

        handles.append(layer.register_forward_hook(hook))

    handles: list[Any] = []
    for name, layer in model.named_modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            watch(name, layer)
    model.zero_grad()
    loss = nn.functional.cross_entropy(model(torch.tensor(batch["x"])), torch.tensor(batch["target"]))
    loss.backward()
    for handle in handles:
        handle.remove()
    power, count = (2, len(batch["target"])) if squared else (1, len(batch["target"]))
    return {
        f"{name}.weight": {
            "rows": (count * torch.cat(leaving[name])).pow(power).sum(0) / count,
            "columns": torch.cat(entering[name]).pow(power).mean(0),
        }
        for name in entering
    }


def train_torch(model: nn.Module, rule: Optimizer, batches: list[dict[str, Any]], *, squared: bool) -> None:
    params = dict(model.named_parameters())
    states = {
        name: {slot: torch.tensor(value) for slot, value in rule.init(param.detach().numpy()).items()}
        for name, param in params.items()
    }
    hyper = {
        name: torch.tensor(value, dtype=torch.float64)
        for name, value in {**rule.hyperparameters(), "lr": rule.schedule.base}.items()
    }
    for done, batch in enumerate(batches):
        means = measured(model, batch, squared=squared)
        with torch.no_grad():
            grads = {name: param.grad for name, param in params.items()}
            given = {name: {**states[name], **means.get(name, {})} for name in params}
            arrays = GroupArrays(params, grads, given, {})
            moved, slots, _ = rule.update_all(xp, arrays, hyper, torch.tensor(done + 1))
            for name, param in params.items():
                states[name] |= slots[name]
                param.copy_(moved[name])


@pytest.fixture
def batches() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.normal(size=(6, 2, 7, 7)), "target": rng.integers(0, 3, 6)} for _ in range(4)]


@pytest.mark.parametrize("rule", [Eva(0.05), AdaFisher(0.01, every=2)], ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("parts", [1, 2], ids=["whole", "microbatches"])
def test_layers_say_what_hooks_see(batches, rule, parts):
    torch.manual_seed(0)
    model = Mixed().double()
    bundle = edgeopt.export(model, torch.tensor(batches[0]["x"]), loss=CrossEntropy(), optimizer=rule)
    session = bundle.session()
    for batch in batches:
        if parts == 1:
            session.step(batch)
            continue
        for part in (slice(0, 4), slice(4, 6)):
            session.accumulate({name: value[part] for name, value in batch.items()})
        session.apply()
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    train_torch(model, rule, batches, squared=isinstance(rule, AdaFisher))
    state = session.state()
    for name, param in model.named_parameters():
        assert not torch.equal(param, start[name])
        np.testing.assert_allclose(state[name], param.detach().numpy(), rtol=1e-9, atol=1e-11, err_msg=name)


def test_a_weight_may_have_its_inputs_first(forward_model):
    """x·W with rows for inputs, as files have it: the transposed weight trains the same."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(5, 3))
    made: dict[str, Callable[[Any], Any]] = {
        "rows": lambda p: edgeopt.tracing.tanh(p["x"] @ p["weight"]),
        "columns": lambda p: edgeopt.tracing.tanh(p["x"] @ edgeopt.tracing.permute_dims(p["weight"], (1, 0))),
    }
    trained = {}
    for side, forward in made.items():
        value = weight if side == "rows" else weight.T.copy()
        model = forward_model(forward, {"weight": value}, ("batch", 5))
        session = Bundle.of(edgeopt.training.compose(model, loss=CrossEntropy(), optimizer=Eva(0.1))).session()
        for place in range(3):
            rng = np.random.default_rng(place)
            session.step({"x": rng.normal(size=(4, 5)), "target": rng.integers(0, 3, 4)})
        trained[side] = session.state()["weight"]
    np.testing.assert_allclose(trained["rows"], trained["columns"].T, rtol=1e-12)
    assert not np.array_equal(trained["rows"], weight)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.last = nn.Linear(4, 3)

    def forward(self, tokens):
        return self.last(self.embedding(tokens).mean(1))


def test_an_embedding_needs_another_rule():
    tokens = torch.zeros(2, 5, dtype=torch.int64)
    with pytest.raises(SignatureError, match=r"'embedding.weight' is the weight of, but the node .* \(Gather\)"):
        edgeopt.export(Tokens(), tokens, loss=CrossEntropy(), optimizer=Eva())
    groups: list[Group | Optimizer] = [Group("embedding.*", optimizer=AdamW()), Eva(0.05)]
    session = edgeopt.export(Tokens(), tokens, loss=CrossEntropy(), optimizer=groups).session()
    batch = {"tokens": tokens.numpy(), "target": np.asarray([0, 2])}
    losses = [session.step(batch)["loss"] for _ in range(5)]
    assert losses[-1] < losses[0]
