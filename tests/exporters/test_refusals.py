"""What is refused: by which error, with which words, and with none that speak of something else."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import EdgeoptError
from edgeopt.losses import MSE
from edgeopt.optimizers import SGD

X = torch.randn(5, 6)
DIMENSIONS = r"dynamic_batch|dynamic_shapes|dimension"
DATA = "data-dependent"


def export(module: nn.Module, example: Any, **settings: Any) -> edgeopt.Bundle:
    return edgeopt.export(module, example, loss=MSE(), optimizer=SGD(lr=0.1), verbose=False, **settings)


class Net(nn.Module):
    def __init__(self, function: Callable[..., Any], *parts: nn.Module) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def branch(net: Net, x: torch.Tensor) -> torch.Tensor:
    return net.linear(x) if x.sum() > 0 else x


def sized(net: Net, x: torch.Tensor) -> torch.Tensor:
    return net.linear(x)[: int(x.abs().sum()) + 1]


class Decomposed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svdvals(self.linear(x))


def sparse(net: Net, x: torch.Tensor) -> torch.Tensor:
    return torch.sparse.mm(x.to_sparse(), net.linear.weight.T)


def packed(net: Net, x: torch.Tensor) -> Any:
    lengths = torch.full((x.shape[0],), 3)
    sequence = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    return nn.utils.rnn.pad_packed_sequence(net.parts[0](sequence)[0], batch_first=True)[0]


def autocast(net: Net, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return net.linear(x).float()


def in_numpy(net: Net, x: torch.Tensor) -> torch.Tensor:
    return net.linear(x) + torch.from_numpy(np.sin(x.numpy()[:, :3]))


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return -gradient


def reversing(net: Net, x: torch.Tensor) -> Any:
    return Reversed.apply(net.linear(x))


def recursing(net: Net, x: torch.Tensor) -> torch.Tensor:
    return recursing(net, x)


def only_in_training(error: Exception) -> Callable[..., torch.Tensor]:
    def function(net: Net, x: torch.Tensor) -> torch.Tensor:
        if net.training:
            raise error
        return net.linear(x)

    return function


def missing(net: Net, x: torch.Tensor) -> torch.Tensor:
    return {"a": x}["b"]


class Holding(nn.Module):
    """A linear layer beside one more parameter."""

    def __init__(self, value: torch.Tensor, trained: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.other = nn.Parameter(value, requires_grad=trained)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def scripted() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 3))
    # A FutureWarning since PyTorch 2.12, a DeprecationWarning before.
    with pytest.warns((DeprecationWarning, FutureWarning), match="deprecated"):
        module[0] = torch.jit.script(module[0])
    return module


def quantized() -> nn.Module:
    with warnings.catch_warnings():
        # torch says once that it will drop quantized tensors.
        warnings.simplefilter("ignore", UserWarning)
        return nn.Sequential(nn.Linear(6, 6), torch.ao.nn.quantized.dynamic.Linear(6, 3))


# Cause: module, example, code, a word that is in the message, and words that are not.
TABLE: dict[str, tuple[Callable[[], nn.Module], Any, str, str, str]] = {
    "branch": (lambda: Net(branch), X, "E203", rf"test_refusals.py:\d+ .*x.sum\(\) > 0(?s:.*){DATA}", DIMENSIONS),
    "size": (lambda: Net(sized), X, "E203", rf"test_refusals.py:\d+ (?s:.*){DATA}", DIMENSIONS),
    "operator": (Decomposed, X, "E203", r"svdvals(?s:.*)`aten\._linalg_svd` has no transl", DIMENSIONS),
    "sparse inside": (lambda: Net(sparse), X, "E203", r"to_sparse", DIMENSIONS),
    "packed": (lambda: Net(packed, nn.GRU(6, 3, batch_first=True)), torch.randn(3, 5, 6), "E203", "pad them", DATA),
    "numpy": (lambda: Net(in_numpy), X, "E203", "leaves torch for numpy", f"{DATA}|{DIMENSIONS}"),
    "own backward": (lambda: Net(reversing), X, "E203", "Reversed is a torch.autograd.Function", DIMENSIONS),
    "recursion": (lambda: Net(recursing), X, "E205", "RecursionError", DIMENSIONS),
    "missing key": (lambda: Net(missing), X, "E205", r"test_refusals.py:\d+.*KeyError: 'b'", DIMENSIONS),
    "wrong width": (lambda: nn.Linear(6, 3), torch.randn(5, 7), "E205", "mat1 and mat2", DIMENSIONS),
    "wrong type": (lambda: nn.Linear(6, 3), X.double(), "E205", "same dtype", DIMENSIONS),
    "in training": (lambda: Net(only_in_training(KeyError("b"))), X, "E205", "KeyError: 'b'", DIMENSIONS),
    "scripted": (scripted, X, "E203", "part '0' is a ScriptModule", DIMENSIONS),
    "quantized": (quantized, X, "E203", "part '1' is a quantized Linear", DIMENSIONS),
    "lazy": (lambda: nn.LazyLinear(3), X, "E203", "'weight' has no shape yet", DIMENSIONS),
    "meta": (lambda: nn.Linear(6, 3, device="meta"), X, "E203", "'weight' is on the meta device", DIMENSIONS),
    "complex": (lambda: Holding(torch.zeros(3, dtype=torch.cfloat)), X, "E203", "'other' is complex", DIMENSIONS),
    "complex input": (lambda: nn.Linear(6, 3), X.to(torch.cfloat), "E203", "'input' is complex", DIMENSIONS),
    "sparse": (lambda: Holding(torch.eye(3).to_sparse()), X, "E203", r"'other' is sparse.*to_dense", DIMENSIONS),
    "sparse input": (lambda: nn.Linear(6, 3), X.to_sparse(), "E203", "'input' is sparse", DIMENSIONS),
    "float8": (lambda: Holding(torch.zeros(3).to(torch.float8_e4m3fn)), X, "E203", "'other' is float8", DIMENSIONS),
    "bfloat16": (lambda: nn.Linear(6, 3).bfloat16(), X.bfloat16(), "E203", r"bfloat16.*model\.float\(\)", DIMENSIONS),
    "bfloat16 input": (lambda: nn.Linear(6, 3), X.bfloat16(), "E203", r"'input' is bfloat16.*float\(\)", DIMENSIONS),
    "autocast": (lambda: Net(autocast), X, "E203", r"bfloat16 \(Gemm in .*enabled=False", DIMENSIONS),
    "no parameters": (nn.Tanh, X, "E204", "the model has none", DIMENSIONS),
}


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_refusals(row: tuple[Callable[[], nn.Module], Any, str, str, str]) -> None:
    make, example, code, said, unsaid = row
    with pytest.raises(EdgeoptError) as caught:
        export(make(), example)
    assert caught.value.code == code
    assert caught.match(said)
    with pytest.raises(AssertionError):
        caught.match(unsaid)


def test_causes_are_chained() -> None:
    error = OSError("the disk")
    with pytest.raises(EdgeoptError) as caught:
        export(Net(only_in_training(error)), X)
    assert caught.value.__cause__ is error


class Converted(nn.Module):
    """Frozen weights in a smaller type, which forward converts."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 6).to(dtype), requires_grad=False)
        self.bias = nn.Parameter(torch.randn(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight.float(), self.bias)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_frozen_weights_of_two_bytes_are_kept(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = Converted(dtype)
    reference = copy.deepcopy(module)
    if dtype == torch.bfloat16 and not hasattr(onnxruntime.OrtValue, "ortvalue_from_numpy_with_onnx_type"):
        pytest.skip("this onnxruntime cannot take bfloat16 from numpy; 1.20 and newer can")
    session = export(module, X).session()
    y = torch.randn(5, 3)
    loss = nn.functional.mse_loss(reference(X), y)
    loss.backward()
    assert session.step((X.numpy(), y.numpy()))["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert reference.bias.grad is not None
    updated = (reference.bias - 0.1 * reference.bias.grad).detach().numpy()
    np.testing.assert_allclose(session.parameters()["bias"], updated, rtol=1e-6, atol=1e-7)
    bits = module.weight.view(torch.int16).numpy()
    np.testing.assert_array_equal(session.parameters()["weight"].view(np.int16), bits)
