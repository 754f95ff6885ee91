"""Checkpoints in forward train as in torch, and become recomputation."""

from __future__ import annotations

import onnx
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import edgeopt


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x):
        return x + torch.nn.functional.gelu(self.inner(torch.sin(x)))


class Net(nn.Module):
    def __init__(self, run):
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.blocks, self.head = nn.Linear(6, 6), nn.Sequential(Block(), Block()), nn.Linear(6, 3)
        self.run = run

    def forward(self, x):
        return self.head(self.run(self, self.stem(x)))


def reentrant(self, x):
    for block in self.blocks:
        x = checkpoint(block, x, use_reentrant=True)
    return x


def not_reentrant(self, x):
    for block in self.blocks:
        x = checkpoint(block, x, use_reentrant=False)
    return x


def sequential(self, x):
    return checkpoint_sequential(self.blocks, 2, x, use_reentrant=False)


def nested(self, x):
    return checkpoint(
        lambda v: checkpoint(self.blocks[1], self.blocks[0](v), use_reentrant=False), x, use_reentrant=False
    )


def without(self, x):
    return self.blocks(x)


def recomputed(bundle):
    graph = onnx.load_from_string(bundle.graphs["step.onnx"]).graph
    return sum(node.name.startswith("recompute/") and node.op_type == "Sin" for node in graph.node), graph


@pytest.mark.parametrize("run", [reentrant, not_reentrant, sequential, nested], ids=lambda run: run.__name__)
def test_training_follows_torch_and_recomputes(run, assert_follows):
    bundle = assert_follows(Net(run), torch.randn(5, 6).double(), steps=1, microbatches=2)
    count, graph = recomputed(bundle)
    assert count >= (1 if run is sequential else 2)
    # What the region computed first is read by nothing but the region: the backward pass reads the copies.
    first = {o for node in graph.node if node.op_type == "Sin" and node.name.startswith("blocks") for o in node.output}
    readers = [node for node in graph.node if first & set(node.input)]
    kept = [node.name for node in readers if node.name.startswith("backward/")]
    assert not kept if run is not sequential else len(kept) <= 1


def test_nothing_is_recomputed_without_a_checkpoint():
    bundle = edgeopt.export(
        Net(without), torch.randn(5, 6), loss=edgeopt.losses.MSE(), optimizer=edgeopt.optimizers.SGD(lr=0.1)
    )
    assert recomputed(bundle)[0] == 0


def test_a_reentrant_checkpoint_of_the_inputs_alone_trains_nothing_as_in_torch(assert_follows):
    class First(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x):
            return self.b(checkpoint(lambda v: torch.tanh(self.a(v)), x, use_reentrant=True))

    with pytest.warns(UserWarning, match="None of the inputs have requires_grad"):
        assert_follows(First(), torch.randn(5, 4).double(), steps=1, microbatches=0)


class Stopped(nn.Module):
    def __init__(self, context):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)
        self.context = context

    def forward(self, x):
        with self.context():
            hidden = torch.tanh(self.a(x))
            with torch.inference_mode(False):
                hidden = hidden * 1.0
        return self.b(hidden.clone())


class Decorated(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)

    @torch.inference_mode()
    def features(self, x):
        return torch.tanh(self.a(x))

    def forward(self, x):
        return self.b(self.features(x).clone())


@pytest.mark.parametrize("module", [Stopped(torch.inference_mode), Stopped(torch.no_grad), Decorated()])
def test_gradients_stop_at_inference_mode(module, assert_follows):
    enter = torch.inference_mode.__enter__
    assert_follows(module, torch.randn(5, 4).double(), steps=2, microbatches=0)
    assert torch.inference_mode.__enter__ is enter
