"""The four kinds of model that the first slice promises, each with its data and its loss in torch and in edgeopt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own abbreviation
from torch import nn

import edgeopt
from edgeopt import tracing
from edgeopt.losses import CrossEntropy, Loss
from edgeopt.training import ForwardGraph, ForwardModel
from edgeopt_runtime.manifest import Manifest


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Cnn(nn.Module):
    """Convolutions with and without stride, BatchNorm, both kinds of pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(2, 8, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 12, 3, stride=2, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(12)
        self.head = nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.avg_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        return self.head(x.flatten(1))


class Encoder(nn.Module):
    """A transformer encoder that classifies token sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 16)
        self.position = nn.Embedding(12, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.layers(self.embedding(tokens) + self.position(positions))
        return self.head(x.mean(dim=1))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(approximate="tanh"), nn.Linear(2 * width, width))
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(width, dim=2)
        split = (batch, length, self.heads, width // self.heads)
        q, k, v = (t.view(split).transpose(1, 2) for t in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """A small GPT: causal attention, learned positions, output layer tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 16)
        self.position = nn.Embedding(12, 16)
        self.blocks = nn.Sequential(Block(16, 2), Block(16, 2))
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 30, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.embedding(tokens) + self.position(positions))))


def _images(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.standard_normal((n, 2, 8, 8)).astype(np.float32), rng.integers(0, 5, n)


def _vectors(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.standard_normal((n, 12)).astype(np.float32), rng.integers(0, 5, n)


def _tokens(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.integers(0, 30, (n, 9)), rng.integers(0, 5, n)


def _text(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    tokens = rng.integers(0, 30, (n, 10))
    return tokens[:, :-1], tokens[:, 1:]


def _last_axis_cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


@dataclass(frozen=True)
class Case:
    """A model with everything a training run of it needs."""

    build: Callable[[], nn.Module]
    data: Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]
    torch_loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = F.cross_entropy
    loss: Loss = field(default_factory=CrossEntropy)
    dynamic_shapes: dict[str, dict[int, str]] | None = None

    def module(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        torch.manual_seed(0)
        return self.build().to(dtype)

    def batches(self, sizes: list[int], dtype: Any = np.float32) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        rng = np.random.default_rng(1)
        for size in sizes:
            x, y = self.data(rng, size)
            yield (x.astype(dtype) if x.dtype == np.float32 else x), y

    def example(self, dtype: Any = np.float32) -> torch.Tensor:
        return torch.from_numpy(next(self.batches([3], dtype))[0])

    def export(self, module: nn.Module, dtype: Any = np.float32, **settings: Any) -> edgeopt.Bundle:
        return edgeopt.export(
            module, self.example(dtype), loss=self.loss, dynamic_shapes=self.dynamic_shapes, **settings
        )


CASES = {
    "mlp": Case(Mlp, _vectors),
    "cnn": Case(Cnn, _images),
    "encoder": Case(Encoder, _tokens, dynamic_shapes={"tokens": {1: "sequence"}}),
    "decoder": Case(
        Decoder,
        _text,
        torch_loss=_last_axis_cross_entropy,
        loss=CrossEntropy(class_axis=-1),
        dynamic_shapes={"tokens": {1: "sequence"}},
    ),
}


@pytest.fixture(params=CASES, scope="session")
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture(scope="session")
def cases() -> dict[str, Case]:
    return CASES


Program = Callable[[dict[str, tracing.Array]], tracing.Array]


@pytest.fixture(scope="session")
def forward_model() -> Callable[..., ForwardModel]:
    """Build a model without a framework: an array program of the input `x` and the parameters, by name."""

    def build(program: Program, parameters: dict[str, np.ndarray], x: tuple[int | str, ...]) -> ForwardModel:
        dtype = next(iter(parameters.values())).dtype

        def graph() -> ForwardGraph:
            made = tracing.new_graph("forward")
            tracer = tracing.Tracer(made)
            arrays = {"x": tracer.input("x", dtype, x)}
            arrays |= {name: tracer.input(name, value.dtype, value.shape) for name, value in parameters.items()}
            tracer.output(program(arrays), "y")
            return ForwardGraph(tracing.new_model(made), ("x",), ("y",))

        return ForwardModel(graph(), graph(), parameters, {})

    return build


@pytest.fixture(scope="session")
def graph_state() -> Callable[[Manifest, dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """The state as the graphs see it: with joined tensors in the place of some."""

    def joined(manifest: Manifest, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        known = [entry for entry in manifest.joined if entry.members[0] in state]
        flat = {entry.name: np.concatenate([state[name].ravel() for name in entry.members]) for entry in known}
        return {**state, **flat}

    return joined
