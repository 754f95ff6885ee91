"""An architecture's gradients and statistics after one batch, in a bundle and in PyTorch.

Parameter by parameter, the norm of the difference is at most `TOLERANCE` of the norm of PyTorch's gradient; both are of
the loss sum, which `accumulate` leaves in its accumulators.

Gradients that are zero by mathematics have nothing to be relative to: a bias in front of a normalisation, the bias of
an attention's keys. PyTorch in float64 tells which they are, since it leaves 1e-16 of the largest gradient there, and
1e-8 or more elsewhere; in float32 both programs leave noise, which may be `TOLERANCE` of the largest gradient at most.

Where a ReLU's argument, or the difference of a maximum's two candidates, is as small as rounding, one program can take
one side and the other the other, and the gradients of a small model then differ by a percent although both are right.
So weights and inputs are drawn anew until PyTorch's own gradient, in float64, hardly moves when all of them move by a
few units in the last place of a float32, and PyTorch's float32 agrees with it. If none of the draws is such a place,
the comparison is made in float64, with a bundle exported in float64. The run ends with a table of what was compared
how.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.losses import MSE
from edgeopt.optimizers import SGD

Arrays = dict[str, np.ndarray[Any, Any]]
Tensors = tuple[torch.Tensor, ...]
Build = Callable[[], tuple[nn.Module, Tensors]]

TOLERANCE = 1e-4
# In float64, as a share of the largest gradient.
ZERO = 1e-12
# How far, relative to each number, weights and inputs move in the search for a place without kinks; how often; and how
# many places are tried.
NUDGE, NUDGES, DRAWS = 3e-7, 3, 6
REPORT = pytest.StashKey[list[str]]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `build` runs for each of its module's ROWS: functions returning a module and its inputs."""
    if "build" in metafunc.fixturenames:
        rows: Mapping[str, Callable[[], Any]] = metafunc.module.ROWS
        metafunc.parametrize("build", rows.values(), ids=rows.keys())


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if lines := config.stash.get(REPORT, []):
        terminalreporter.section("gradients of architectures")
        for line in lines:
            terminalreporter.line(line)


class Outcome(NamedTuple):
    """What one batch leaves: the mean loss, gradients of the loss sum, buffers, and then a prediction."""

    loss: float
    gradients: Arrays
    buffers: Arrays
    prediction: np.ndarray[Any, Any]


def without_randomness(module: nn.Module) -> None:
    """Switch dropout of every kind off; give constant parameters (fresh norms, zero heads) values of their own."""
    for part in module.modules():
        for name in ("p", "drop_prob", "drop_rate", "dropout", "attention_dropout", "activation_dropout", "dropout_p"):
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad and parameter.std(correction=0) < 1e-3:
                parameter.add_(0.1 * torch.randn_like(parameter))


def converted(module: nn.Module, inputs: Tensors, dtype: torch.dtype) -> tuple[nn.Module, Tensors]:
    """A copy in another precision."""
    return copy.deepcopy(module).to(dtype), tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)


def first_output(outputs: Any) -> torch.Tensor:
    """The output that the loss reads."""
    if isinstance(outputs, Mapping):
        outputs = list(outputs.values())
    result = outputs if isinstance(outputs, torch.Tensor) else outputs[0]
    assert isinstance(result, torch.Tensor)
    return result


def in_pytorch(module: nn.Module, inputs: Tensors, target: torch.Tensor) -> Outcome:
    module = copy.deepcopy(module)
    total = ((first_output(module(*inputs)) - target) ** 2).sum()
    total.backward()
    gradients = {
        name: (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).numpy()
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    }
    buffers = {name: buffer.numpy() for name, buffer in module.named_buffers()}
    module.eval()
    with torch.no_grad():
        prediction = first_output(module(*inputs)).numpy()
    return Outcome(total.item() / target.numel(), gradients, buffers, prediction)


def in_a_bundle(bundle: edgeopt.Bundle, inputs: Tensors, target: torch.Tensor, folder: Path) -> Outcome:
    session = bundle.session()
    arrays = [tensor.numpy() for tensor in inputs]
    loss = session.accumulate((*arrays, target.numpy()))["loss"]
    # The file keeps what waits for its update.
    session.save(folder / "accumulated.edgeopt")
    state = edgeopt.Bundle.load(folder / "accumulated.edgeopt").state
    gradients = {spec.parameter: state[spec.name] for spec in bundle.manifest.accumulators if spec.parameter}
    buffers = {spec.name: state[spec.name] for spec in bundle.manifest.tensors if spec.role == "buffer"}
    outputs = session.predict(arrays)
    prediction = next(iter(outputs.values())) if isinstance(outputs, dict) else outputs
    return Outcome(loss, gradients, buffers, prediction)


def norm(array: np.ndarray[Any, Any]) -> float:
    return float(np.linalg.norm(array.astype(np.float64)))


def errors(ours: Arrays, theirs: Arrays, zero: set[str]) -> dict[str, float]:
    """Relative to the gradient itself; where that is zero, to the largest of all."""
    largest = max(map(norm, theirs.values()))
    return {
        name: norm(ours[name].astype(np.float64) - gradient) / (largest if name in zero else norm(gradient))
        for name, gradient in theirs.items()
    }


def nudged(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * (1 + NUDGE * torch.randn_like(tensor)) if tensor.is_floating_point() else tensor


def movement(module: nn.Module, inputs: Tensors, target: torch.Tensor, exact: Outcome, zero: set[str]) -> float:
    """The largest relative change of a gradient when weights and inputs move a little."""
    largest = 0.0
    for _ in range(NUDGES):
        other = copy.deepcopy(module)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.copy_(nudged(parameter))
        moved = in_pytorch(other, tuple(map(nudged, inputs)), target)
        largest = max(largest, *errors(moved.gradients, exact.gradients, zero).values())
    return largest


class Place(NamedTuple):
    """A module with inputs and target in one precision, what PyTorch makes of them, and how well that is defined.

    Attributes:
        zero: The parameters whose gradient is zero by mathematics.
        doubt: The largest of the changes by a nudge, and of three times PyTorch's own errors in float32.
    """

    module: nn.Module
    inputs: Tensors
    target: torch.Tensor
    expected: Outcome
    zero: set[str]
    doubt: float


def draw(build: Build, seed: int) -> tuple[Place, Place]:
    """Weights, inputs and a target, in float32 and in float64."""
    torch.manual_seed(seed)
    module, inputs = build()
    module.train()
    without_randomness(module)
    with torch.no_grad():
        target = torch.randn_like(first_output(copy.deepcopy(module)(*inputs)))
    single = in_pytorch(module, inputs, target)
    wide, wide_inputs = converted(module, inputs, torch.float64)
    double = in_pytorch(wide, wide_inputs, target.double())
    largest = max(map(norm, double.gradients.values()))
    zero = {name for name, gradient in double.gradients.items() if norm(gradient) <= ZERO * largest}
    moved = movement(wide, wide_inputs, target.double(), double, zero)
    doubt = max(moved, 3 * max(errors(single.gradients, double.gradients, zero).values()))
    return (
        Place(module, inputs, target, single, zero, doubt),
        Place(wide, wide_inputs, target.double(), double, zero, doubt),
    )


def smooth_place(build: Build) -> Place:
    """In float32 where rounding does not matter, else in float64."""
    for seed in range(DRAWS):
        single, double = draw(build, seed)
        if single.doubt <= TOLERANCE:
            return single
    return double


@pytest.fixture
def check_architecture(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., None]:
    """Export a module, feed one batch, and compare loss, gradients, buffers and prediction with PyTorch's."""

    def check(build: Build, **settings: Any) -> None:
        begin = time.process_time()
        place = smooth_place(build)
        start = time.process_time()
        bundle = edgeopt.export(place.module, place.inputs, loss=MSE(), optimizer=SGD(lr=0.1), **settings)
        exported = time.process_time()
        found, expected = in_a_bundle(bundle, place.inputs, place.target, tmp_path), place.expected

        assert found.gradients.keys() == expected.gradients.keys()
        compared = errors(found.gradients, expected.gradients, place.zero)
        worst = max(compared, key=lambda name: compared[name])
        nodes = len(onnx.load_from_string(bundle.contents().graphs["accumulate.onnx"]).graph.node)
        request.config.stash.setdefault(REPORT, []).append(
            f"{request.node.callspec.id:28} {str(place.target.dtype)[6:]}: {compared[worst]:.0e} (doubt "
            f"{place.doubt:.0e}), {len(compared)} parameters, {len(place.zero)} zero; {nodes} nodes; "
            f"{exported - start:.1f} of {time.process_time() - begin:.1f} s"
        )
        assert compared[worst] <= TOLERANCE, worst
        assert found.loss == pytest.approx(expected.loss, rel=1e-5)
        for name, buffer in expected.buffers.items():
            # Means of centred activations are zero up to rounding, so there is an absolute part too.
            np.testing.assert_allclose(found.buffers[name], buffer, rtol=1e-4, atol=1e-5, err_msg=name)
        scale = float(np.abs(expected.prediction).max())
        np.testing.assert_allclose(found.prediction, expected.prediction, atol=1e-4 * scale)

    return check
