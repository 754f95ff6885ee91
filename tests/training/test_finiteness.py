"""What a training graph reports about what it writes, against numpy, and what a session makes of it."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import edgeopt
from edgeopt import Bundle
from edgeopt.losses import MSE, CrossEntropy
from edgeopt.optimizers import LAMB, SGD, Adam, AdamW, Optimizer
from edgeopt.tracing import Tracer, new_graph, new_model
from edgeopt.training.graphs.finiteness import finite_check
from edgeopt_runtime import BatchError, BundleContents, NonFiniteLossError, StateError, TrainingSession
from edgeopt_runtime.manifest import GraphOutput
from edgeopt_runtime.onnx_wire import has_external_data

POISONS = (np.nan, np.inf, -np.inf)


def checker(arrays: list[NDArray[Any]]) -> Any:
    """A function from arrays of these dtypes and shapes to what the check says."""
    graph = new_graph("check")
    tracer = Tracer(graph)
    inputs = [tracer.input(f"x{place}", array.dtype, array.shape) for place, array in enumerate(arrays)]
    check = finite_check(inputs)
    assert check is not None
    tracer.output(check, "check")
    import onnx_ir as ir

    content = ir.serde.serialize_model(new_model(graph)).SerializeToString()
    assert not has_external_data(content)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def run(given: list[NDArray[Any]]) -> float:
        return float(session.run(None, {f"x{place}": array for place, array in enumerate(given)})[0])

    return run


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (3,), (5, 7), (4096,), (64, 65), (4099,), (3, 5, 401), (128, 1, 33)])
def test_one_element_of_many_is_found_and_large_numbers_are_no_alarm(dtype: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    largest = np.finfo(dtype).max
    # Any sum of these overflows.
    array = np.asarray(np.where(rng.uniform(size=shape) < 0.5, -largest, largest), dtype)
    other = np.full((2, 2), np.finfo(np.float32).max)
    run = checker([array, other])
    assert run([array, other]) == 0.0
    for poison in POISONS:
        for place in {0, array.size - 1, *rng.integers(array.size, size=8).tolist()}:
            bad = array.copy()
            bad.reshape(-1)[place] = poison
            assert np.isnan(run([bad, other])), (poison, place)
    assert np.isnan(run([array, np.asarray([[1, 2], [np.inf, 1]], np.float32)]))


def test_whole_numbers_are_left_out() -> None:
    tracer = Tracer(new_graph("check"))
    assert finite_check([tracer.input("n", np.dtype(np.int64), (3,))]) is None


class Length(nn.Module):
    """A root without a slope at 0: the loss is finite there, and the gradient NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ((self.scale * x) ** 2).sum(1, keepdim=True).sqrt()


GOOD = np.ones((2, 2), np.float32), np.ones((2, 1), np.float32)
BAD = np.array([[0, 0], [1, 1]], np.float32), np.ones((2, 1), np.float32)


@pytest.fixture(scope="module")
def length() -> Bundle:
    return edgeopt.export(Length(), torch.ones(2, 2), loss=MSE(), optimizer=AdamW(1e-2), check=False)


def unchanged(session: TrainingSession, before: dict[str, NDArray[Any]]) -> None:
    for name, array in session.state().items():
        assert array.tobytes() == before[name].tobytes(), name


def test_a_finite_loss_with_a_gradient_that_is_not_changes_nothing(length: Bundle) -> None:
    session = length.session()
    session.step(GOOD)
    before = session.state()
    words = r"The loss is finite, but this step would make the parameter `scale` NaN \(2 of 2 elements\)"
    with pytest.raises(NonFiniteLossError, match=words) as caught:
        session.step(BAD)
    assert np.isfinite(caught.value.metrics["loss"])
    unchanged(session, before)
    assert np.isfinite(session.step(GOOD)["loss"])


def test_accumulating_names_the_gradient(length: Bundle) -> None:
    session, undisturbed = length.session(), length.session()
    session.accumulate(GOOD)
    with pytest.raises(NonFiniteLossError, match="the gradient of `scale` NaN"):
        session.accumulate(BAD)
    session.apply()
    undisturbed.accumulate(GOOD)
    undisturbed.apply()
    unchanged(session, undisturbed.state())


def test_skipping_leaves_the_state_and_the_mean_alone(length: Bundle) -> None:
    session, undisturbed = length.session(on_nonfinite="skip"), length.session()
    nan = (np.full((2, 2), np.nan, np.float32), GOOD[1])
    history = session.fit([GOOD, BAD, nan, GOOD], epochs=2, progress=False)
    expected = undisturbed.fit([GOOD, GOOD], epochs=2, progress=False)
    unchanged(session, undisturbed.state())
    for mine, theirs in zip(history.epochs, expected.epochs, strict=True):
        assert mine == {**theirs, "skipped": 2.0}
    assert np.isnan(session.fit([nan], progress=False).epochs[0]["loss"]), "nothing was left to average"


def test_going_on_is_remembered(length: Bundle, tmp_path: Path) -> None:
    session = length.session(on_nonfinite="ignore")
    session.step(GOOD)
    session.step(BAD)
    assert np.isnan(session.parameters()["scale"]).all()
    session.save(tmp_path / "bad.edgeopt")
    for policy in ("raise", "skip"):
        loaded = TrainingSession.load(tmp_path / "bad.edgeopt", on_nonfinite=policy)
        with pytest.raises(NonFiniteLossError, match=r"holds NaN .* already, since the bundle was loaded"):
            loaded.step(GOOD)
    session = length.session()
    session.load_parameters({"scale": np.array([np.nan, 1], np.float32)})
    words = r"`scale` holds NaN \(1 of 2 elements\) already, since .*load_parameters"
    with pytest.raises(NonFiniteLossError, match=words):
        session.step(GOOD)


def linear(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(2, 1, dtype=dtype)


def test_an_optimizer_that_overflows_is_stopped() -> None:
    # The square of a gradient of 1e20 is infinite in float32: the weight would stand still for ever, unseen.
    bundle = edgeopt.export(linear(), torch.zeros(2, 2), loss=MSE(), optimizer=Adam(1e-2), check=False)
    session = bundle.session()
    x = np.array([[1e10, 1], [1, 1]], np.float32)
    with pytest.raises(
        NonFiniteLossError, match=r"the optimizer's `exp_avg_sq` of `weight` infinite.*overflows float32"
    ):
        session.step((x, np.full((2, 1), 1e10, np.float32)))
    assert not session.state()["optimizer.step"]


def test_weights_that_overflow_float16_are_stopped() -> None:
    bundle = edgeopt.export(
        linear(torch.float16), torch.zeros(2, 2, dtype=torch.float16), loss=MSE(), optimizer=SGD(6e4), check=False
    )
    session = bundle.session()
    with pytest.raises(NonFiniteLossError, match=r"parameter `.*` infinite.*float16"):
        session.step((np.ones((2, 2), np.float16), np.full((2, 1), 3, np.float16)))


class Watched(nn.Module):
    """Buffers that are written in training: one that overflows, one that begins with infinities."""

    power: torch.Tensor
    lowest: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = linear()
        self.register_buffer("power", torch.ones(2))
        self.register_buffer("lowest", torch.tensor([float("inf"), float("inf")]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.power.copy_(self.power * x.abs().amax(0) ** 4)
            self.lowest.copy_(torch.minimum(self.lowest, torch.where(x > 0, x, torch.inf).amin(0)))
        return self.linear(x.clamp(-1, 1))


def test_buffers_are_checked_and_infinities_that_were_there_are_none_of_the_guards_business() -> None:
    session = edgeopt.export(Watched(), torch.ones(2, 2), loss=MSE(), optimizer=SGD(0.1), check=False).session()
    y = np.zeros((2, 1), np.float32)
    session.step((np.array([[1, -1], [2, -2]], np.float32), y))
    assert session.state()["lowest"].tolist() == [1, np.inf]
    with pytest.raises(NonFiniteLossError, match="would make the buffer `power` infinite"):
        session.step((np.array([[1e10, 1], [1, 1]], np.float32), y))
    assert session.state()["lowest"].tolist() == [1, np.inf]
    with pytest.raises(NonFiniteLossError, match="`loss` of this step is nan"):
        session.step((np.array([[np.nan, 1], [1, 1]], np.float32), y))


def test_what_the_model_writes_into_its_parameters_is_checked() -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.other = linear(), nn.Parameter(torch.ones(2), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.other.copy_(1 / x.abs().amax(0))
            return self.linear(x)

    session = edgeopt.export(Normed(), torch.ones(2, 2), loss=MSE(), optimizer=SGD(0.1), check=False).session()
    y = np.zeros((2, 1), np.float32)
    session.step((np.ones((2, 2), np.float32), y))
    for call in (session.step, session.accumulate):
        with pytest.raises(NonFiniteLossError, match="the parameter `other` infinite"):
            call((np.array([[0, 1], [0, 1]], np.float32), y))


@pytest.mark.parametrize("rule", [LAMB(1e-3), SGD(0.1)], ids=["alone", "joined"])
def test_every_parameter_is_watched_alone_and_joined(rule: Optimizer) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(70, 70), nn.Tanh(), nn.Linear(70, 3), nn.Tanh(), nn.Linear(3, 1))
    bundle = edgeopt.export(net, torch.zeros(2, 70), loss=MSE(), optimizer=rule, check=False)
    assert bool(bundle.manifest.joined) is rule.elementwise
    batch = np.ones((2, 70), np.float32), np.ones((2, 1), np.float32)
    for name in ("0.weight", "0.bias", "2.weight", "4.bias"):
        session = bundle.session()
        accumulators = [spec.name for spec in bundle.manifest.accumulators if spec.parameter == name]
        session.accumulate(batch)
        session._engine.state.writable(accumulators[0]).reshape(-1)[-1] = np.nan
        with pytest.raises(NonFiniteLossError, match=f"This apply would make the parameter `{name}` NaN"):
            session.apply()
        with pytest.raises(StateError, match="Nothing has been accumulated"):
            session.apply()


def test_bundles_without_the_check_are_guarded_by_their_metrics(length: Bundle) -> None:
    def bare(port: GraphOutput) -> bool:
        return port.kind != "check"

    manifest = length.manifest
    signature = manifest.signatures["step"]
    import dataclasses

    import onnx

    model = onnx.load_from_string(length.contents().graphs["step.onnx"])
    for output in [value for value in model.graph.output if value.name == "check.written"]:
        model.graph.output.remove(output)
    older = dataclasses.replace(signature, outputs=tuple(filter(bare, signature.outputs)))
    manifest = dataclasses.replace(manifest, signatures={"step": older})
    session = TrainingSession(BundleContents(manifest, {"step.onnx": model.SerializeToString()}, dict(length.state)))
    session.step(GOOD)
    session.step(BAD)
    with pytest.raises(NonFiniteLossError, match="since the bundle was loaded"):
        session.step(GOOD)


@functools.cache
def classifier(**settings: Any) -> Bundle:
    torch.manual_seed(0)
    return edgeopt.export(
        nn.Linear(4, 3),
        torch.zeros(2, 4),
        loss=CrossEntropy(**settings),
        optimizer=SGD(0.1),
        metrics=[edgeopt.metrics.Accuracy()],
        check=False,
    )


X = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
Y = np.array([0, 2, -100, -100, 1, 0])


@pytest.mark.parametrize("policy", ["raise", "skip", "ignore"])
def test_a_microbatch_of_padding_only_adds_nothing(policy: Any) -> None:
    torch.manual_seed(0)
    module = nn.Linear(4, 3)
    nn.functional.cross_entropy(module(torch.from_numpy(X)), torch.from_numpy(Y)).backward()
    torch.optim.SGD(module.parameters(), 0.1).step()
    expected = module.weight.detach().numpy()
    session = classifier().session(on_nonfinite=policy)
    metrics = [session.accumulate((X[start : start + 2], Y[start : start + 2])) for start in (2, 0, 4)]
    assert metrics[0]["loss"] == metrics[0]["accuracy"] == 0.0
    assert all(np.isfinite(list(each.values())).all() for each in metrics)
    session.apply()
    np.testing.assert_allclose(session.parameters()["weight"], expected, rtol=1e-6, atol=1e-7)


def test_where_nothing_counts_there_is_no_update() -> None:
    bundle = classifier()
    session, padding = bundle.session(), (X[2:4], Y[2:4])
    before = session.state()
    with pytest.raises(BatchError, match="every target is ignored"):
        session.step(padding)
    session.accumulate(padding)
    with pytest.raises(StateError, match="every target is ignored"):
        session.apply()
    unchanged(session, before)
    skipping = bundle.session(on_nonfinite="skip")
    assert skipping.step(padding)["skipped"] == 1.0
    skipping.accumulate(padding)
    assert skipping.apply()["skipped"] == 1.0
    unchanged(skipping, before)
    # As torch goes on, with NaN.
    ignoring = bundle.session(on_nonfinite="ignore")
    assert np.isnan(ignoring.step(padding)["loss"])
    assert np.isnan(ignoring.parameters()["weight"]).all()


def test_evaluation_counts_what_counts() -> None:
    session = classifier().session()
    whole = session.evaluate((X, Y))
    assert session.evaluate([(X[2:4], Y[2:4]), (X[:2], Y[:2]), (X[4:], Y[4:])]) == pytest.approx(whole)


def test_class_weights_of_zero_weigh_nothing_either() -> None:
    session = classifier(weight=(0.0, 1.0, 1.0)).session()
    with pytest.raises(BatchError, match="weighs nothing"):
        session.step((X[:2], np.array([0, 0])))


def test_the_optimizer_can_be_replaced_under_guard(length: Bundle) -> None:
    session = copy.copy(length).with_optimizer(SGD(0.1, momentum=0.9)).bundle.session()
    session.step(GOOD)
    with pytest.raises(NonFiniteLossError, match="`scale` NaN"):
        session.step(BAD)
    with pytest.raises(NonFiniteLossError, match="the gradient of `scale` NaN"):
        session.accumulate(BAD)


@pytest.mark.parametrize("method", ["lbfgs", "svrg", "saga"])
def test_minimising_ends_at_nothing_that_is_not_finite(length: Bundle, method: str) -> None:
    session = length.session()
    before = session.state()
    with pytest.raises(NonFiniteLossError):
        session.minimize(BAD, method=method)
    unchanged(session, before)


def test_minimising_without_gradients_stays_in_the_range_of_the_weights() -> None:
    class Bounded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((2,), 6e4, dtype=torch.float16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sigmoid(self.weight * x)

    session = edgeopt.export(
        Bounded(), torch.ones(2, 2, dtype=torch.float16), loss=MSE(), optimizer=SGD(0.1), check=False
    ).session()
    x, y = np.ones((2, 2), np.float16), np.full((2, 2), 2, np.float16)
    with pytest.raises(NonFiniteLossError, match="weight is not finite"):
        session.minimize((x, y), method="mezo", max_iter=5, epsilon=1e5, seed=0)


def test_bfloat16_is_judged_by_its_bits() -> None:
    from edgeopt_runtime.tensors import is_finite

    numbers = np.array([1.0, -3e38, 0.0], ml_dtypes.bfloat16).view(np.uint16)
    assert is_finite(numbers, "bfloat16")
    for poison in POISONS:
        assert not is_finite(np.array([1.0, poison], ml_dtypes.bfloat16).view(np.uint16), "bfloat16")
