"""Every operator that PyTorch tests itself, exported with its own sample arguments and compared in float64.

`op_db` lists PyTorch's operators with arguments of every kind. The tensors of a sample become parameters (floats) and
buffers (integers) of a module, everything else stays as it is; outputs are compared, and the gradients of a random
projection of them by a step of SGD. An operator may be refused by a typed error, in words; what may not happen is
another number.
"""

from __future__ import annotations

import re
import sys
import types
import unittest
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import EdgeoptError, ExportDifferenceError
from edgeopt.losses import MSE
from edgeopt.optimizers import SGD

if "expecttest" not in sys.modules:
    # PyTorch's list of operators imports it, and uses nothing of it.
    stub: Any = types.ModuleType("expecttest")
    stub.TestCase = unittest.TestCase
    sys.modules["expecttest"] = stub

from torch.testing._internal.common_methods_invocations import op_db  # behind the stub

# What nobody calls in a forward, or what is no function of its arguments: by the beginning of the name.
SKIPPED = {
    r"special\.|polygamma|mvlgamma|igamma|i0$|digamma|lgamma|erfinv": "special functions",
    r"linalg\.|svd|lu|chol|geqrf|ormqr|pca|pinverse|triangular|logdet|matrix_exp|cov$|corrcoef": "factorizations",
    r"rand|normal|bernoulli|cauchy|exponential|log_normal|multinomial|geometric|uniform|.*dropout|.*rrelu": "random",
    r"empty|new_empty|resize|as_strided|nonzero|argwhere|unique|masked_select|combinations|equal$|item$|allclose|"
    r"to_sparse|sparse|bincount|hist|is_": "results without values, or whose size depends on values",
    r"fft\.|stft|istft|complex|c(float|double|half)|chalf|polar|view_as_|angle|real$|imag$|conj|resolve|vdot|H$|mH$|"
    r"signal\.": "complex numbers, windows",
    r"jiterator|torch\.|_|.*_copy$|nn\.functional\.(ctc|fractional|multi_head)|max_pool2d_with|native_dropout_b|renorm|"
    r"hash|gcd|lcm|nextafter|frexp|ldexp|unravel|quantile|nanquantile|linspace\.|logspace\.": "internal, or rare",
}

# What is refused today: a word of the message, and the reason.
REFUSED = {
    "diagonal_scatter": ("functional graph", "torch's decomposition of it is not functional"),
    "masked.median": ("nanmedian", "sorting does not know NaN in ONNX"),
    "mode": ("mode", "no ONNX operator counts equal elements"),
    "nanmedian": ("nanmedian", "sorting does not know NaN in ONNX"),
    "nn.functional.gaussian_nll_loss": ("data-dependent", "it asks whether a variance is negative"),
    "grid_sampler_3d": ("grid_sampler_3d", "ONNX Runtime samples images, not volumes, with gradients"),
    "nn.functional.linear_cross_entropy.chunked": ("no translation", "an operator of chunks without a decomposition"),
    "nn.functional.linear_cross_entropy.chunked_none": (
        "no translation",
        "an operator of chunks without a decomposition",
    ),
    "nn.functional.pdist": ("_pdist_forward", "distances of pairs have no decomposition; cdist has"),
    "put": ("aten.put", "it writes by flat positions, and no decomposition says so"),
    "repeat_interleave": ("repeat_interleave", "how often is a tensor, and so is the length of the result"),
    "scatter": ("aten.scatter", "with multiplication, PyTorch itself has no gradient for it"),
}

# What the check of the export finds and refuses: nothing is silently another number.
FOUND = {
    "hypot": "the last digit of the largest number there is decides between it and infinity",
    "index_fill": "the gradient of a value that is written twice to one place",
    "masked.log_softmax": "the gradient of rows that are hidden as a whole is NaN, and PyTorch's is zero",
    "masked.logaddexp": "as masked.log_softmax",
    "masked.softmax": "as masked.log_softmax",
    "masked.softmin": "as masked.log_softmax",
    "native_batch_norm": "mixed types without running statistics",
    "nn.functional.grid_sample": "ONNX Runtime samples volumes in none but the plainest ways",
    "nn.functional.interpolate.bicubic": "ONNX's scales are float32, and so are the places in float64 models",
    "nn.functional.interpolate.bilinear": "as bicubic",
    "nn.functional.interpolate.trilinear": "as bicubic",
    "nn.functional.pad.replicate_negative": "ONNX Runtime does not pad what it has cut to nothing before",
    "nn.functional.upsample_bilinear": "as bicubic",
}

# PyTorch's own kernels have constants in float32 in them.
IN_FLOAT32 = ("nn.functional.hardsigmoid", "nn.functional.hinge_embedding_loss")


def tensors(argument: Any) -> Iterator[torch.Tensor]:
    if isinstance(argument, torch.Tensor):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for part in argument:
            yield from tensors(part)
    elif isinstance(argument, dict):
        yield from tensors(list(argument.values()))


def filled(argument: Any, values: Iterator[torch.Tensor]) -> Any:
    if isinstance(argument, torch.Tensor):
        return next(values)
    if isinstance(argument, (list, tuple)):
        parts = [filled(part, values) for part in argument]
        return type(argument)(*parts) if hasattr(argument, "_fields") else type(argument)(parts)
    if isinstance(argument, dict):
        return {name: filled(part, values) for name, part in argument.items()}
    return argument


def kind(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        return (argument.ndim, str(argument.dtype))
    if isinstance(argument, (list, tuple)):
        return tuple(map(kind, argument))
    if isinstance(argument, dict):
        return tuple((name, kind(part)) for name, part in argument.items())
    return "number" if isinstance(argument, float) else repr(argument)


def is_plain(sample: Any) -> bool:
    found = list(tensors((sample.input, sample.args, sample.kwargs)))
    dtypes = (torch.float64, torch.int64, torch.int32, torch.bool)
    return any(t.dtype == torch.float64 for t in found) and all(
        t.layout == torch.strided and t.dtype in dtypes and 0 < t.numel() < 3000 for t in found
    )


def chosen(info: Any, count: int = 4) -> list[Any]:
    """Samples of different kinds, among them those with the most and the fewest arguments."""
    torch.manual_seed(0)
    found: dict[Any, Any] = {}
    for position, sample in enumerate(info.sample_inputs("cpu", torch.float64)):
        if position > 300:
            break
        if is_plain(sample):
            found.setdefault(kind((sample.input, sample.args, sample.kwargs)), sample)
    ordered = sorted(found.values(), key=lambda sample: -len(sample.args) - len(sample.kwargs))
    places: Any = np.unique(np.linspace(0, len(ordered) - 1, count).round().astype(int)) if ordered else []
    return [ordered[place] for place in places]


class Called(nn.Module):
    """The operator with the arguments of some samples.

    Attributes:
        gain: What the loss reads is multiplied by it, so that there is always something to train.
    """

    def __init__(self, info: Any, samples: list[Any]) -> None:
        super().__init__()
        self.info, self.samples = info, samples
        self.gain = nn.Parameter(torch.ones((), dtype=torch.float64))
        self.names: list[list[str]] = []
        for number, sample in enumerate(samples):
            names = []
            for position, tensor in enumerate(tensors((sample.input, sample.args, sample.kwargs))):
                name, value = f"sample_{number}_argument_{position}", tensor.detach().clone().contiguous()
                if value.is_floating_point():
                    self.register_parameter(name, nn.Parameter(value))
                else:
                    self.register_buffer(name, value)
                names.append(name)
            self.names.append(names)
            try:
                self.results(number)
            except RuntimeError:
                # Targets and weights of losses that PyTorch does not differentiate.
                for name in names[1:]:
                    getattr(self, name).requires_grad_(False)
        with torch.no_grad():
            sizes = [result.shape for result in self.all_results()]
        for position, size in enumerate(sizes):
            weight = np.cos(1.3 * np.arange(int(np.prod(size))) + position).reshape(tuple(size))
            self.register_buffer(f"projection_{position}", torch.tensor(weight))

    def results(self, number: int) -> list[torch.Tensor]:
        # Clones: some operators write into their argument.
        sample, values = self.samples[number], iter([getattr(self, name).clone() for name in self.names[number]])
        first, args, kwargs = filled((sample.input, sample.args, sample.kwargs), values)
        return [result for result in tensors(self.info.op(first, *args, **kwargs)) if not result.is_complex()]

    def all_results(self) -> list[torch.Tensor]:
        return [result for number in range(len(self.samples)) for result in self.results(number)]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = [result.double() for result in self.all_results()]
        projected = x.sum() * 0.0
        for position, result in enumerate(found):
            projected = projected + (result * getattr(self, f"projection_{position}")).sum()
        return ((projected * self.gain).reshape(1), *(result + 0.0 * x.sum() for result in found))


CASES = {
    f"{info.name}.{info.variant_test_name}".rstrip("."): info
    for info in op_db
    if torch.float64 in info.supported_dtypes("cpu") and not any(re.match(pattern, info.name) for pattern in SKIPPED)
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CASES)
def test_operator_equals_pytorch(name: str) -> None:
    info = CASES[name]
    samples = chosen(info)
    if not samples:
        pytest.skip("no sample of real numbers")
    try:
        compare(Called(info, samples), 1e-6 if name in IN_FLOAT32 else 1e-10)
    except ExportDifferenceError:
        if name not in FOUND:
            raise
    except EdgeoptError as error:
        if name not in REFUSED:
            raise
        cause, why = REFUSED[name]
        if cause not in str(error):
            raise AssertionError(f"It is refused, but not since {why}.") from error
    else:
        assert name not in {**REFUSED, **FOUND}, "It is not refused any more."


def compare(module: Called, tolerance: float) -> None:
    x = torch.zeros(2, dtype=torch.float64)
    session = edgeopt.export(module, x, loss=MSE(), optimizer=SGD(lr=1.0), dynamic_batch=False, verbose=False).session(
        on_nonfinite="skip"
    )
    want = module(x)
    found = session.predict(x.numpy())
    for mine, theirs in zip(found.values() if isinstance(found, dict) else [found], want, strict=True):
        np.testing.assert_allclose(mine, theirs.detach(), rtol=tolerance, atol=tolerance)
    loss = nn.functional.mse_loss(want[0], torch.zeros(1, dtype=torch.float64))
    if not loss.requires_grad or not torch.isfinite(loss):
        return
    try:
        loss.backward()
    except RuntimeError:
        return  # PyTorch has no gradient for it, or not at all of the arguments
    session.step((x.numpy(), np.zeros(1)))
    for name, parameter in module.named_parameters():
        if parameter.grad is not None and bool(torch.isfinite(gradient := parameter.grad.to_dense()).all()):
            theirs = (parameter - gradient).detach().numpy()
            scale = max(1.0, float(gradient.abs().max()))
            np.testing.assert_allclose(session.parameters()[name], theirs, rtol=0, atol=tolerance * scale, err_msg=name)
