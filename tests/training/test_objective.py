"""Several losses together: of several outputs, each a mean of its own, with weights of samples; beside PyTorch."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.losses import L1, MSE, CrossEntropy, WeightedSum
from edgeopt.metrics import Accuracy
from edgeopt.optimizers import SGD, AdamW, Group

F = nn.functional
RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 6)).astype(np.float32)
LABELS = RNG.integers(0, 4, 12)
LABELS[[1, 2, 3, 7]] = -100
DEPTH = RNG.standard_normal((12, 2)).astype(np.float32)
WEIGHTS = RNG.uniform(0.0, 3.0, 12).astype(np.float32)
BATCH: dict[str, Any] = {"x": X, "target": LABELS, "depth": DEPTH}


class TwoHeads(nn.Module):
    """A shared layer, and two heads on it."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.classes, self.numbers = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Logits and numbers."""
        hidden = torch.tanh(self.trunk(x))
        return {"logits": self.classes(hidden), "depth_of": self.numbers(hidden)}


def model() -> TwoHeads:
    torch.manual_seed(0)
    return TwoHeads()


LOSS = CrossEntropy(output="logits") + 0.3 * MSE(output="depth_of", target="depth")


def theirs(module: TwoHeads, rows: slice = slice(None)) -> torch.Tensor:
    """The same of PyTorch."""
    outputs = module(torch.from_numpy(X[rows]))
    labels, depth = torch.from_numpy(LABELS[rows]), torch.from_numpy(DEPTH[rows])
    return F.cross_entropy(outputs["logits"], labels) + 0.3 * F.mse_loss(outputs["depth_of"], depth)


def trained(steps: int = 3) -> dict[str, np.ndarray[Any, Any]]:
    """The weights after some steps of PyTorch's SGD with momentum."""
    module = model()
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        theirs(module).backward()
        optimizer.step()
    return {name: value.detach().numpy() for name, value in module.named_parameters()}


def export(loss: Any = LOSS, optimizer: Any = None, **settings: Any) -> edgeopt.Bundle:
    rule = SGD(0.1, momentum=0.9) if optimizer is None else optimizer
    return edgeopt.export(model(), torch.zeros(2, 6), loss=loss, optimizer=rule, verbose=False, **settings)


def close(found: Any, expected: Any, tolerance: float = 2e-6) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


def part(rows: slice) -> dict[str, Any]:
    return {name: value[rows] for name, value in BATCH.items()}


def test_steps_are_those_of_torch() -> None:
    session = export().session()
    metrics = [session.step(BATCH) for _ in range(3)]
    close(session.parameters(), trained())
    assert metrics[0]["loss"] == pytest.approx(theirs(model()).item(), rel=1e-6)
    assert metrics[0]["loss"] == pytest.approx(metrics[0]["loss.logits"] + 0.3 * metrics[0]["loss.depth_of"], rel=1e-6)


@pytest.mark.parametrize("cuts", [(0, 4, 12), (0, 1, 2, 8, 12), tuple(range(13))])
def test_accumulation_is_exact_though_the_losses_count_different_things(cuts: tuple[int, ...]) -> None:
    """Rows 1 to 3 have no label: their microbatches count in one loss and not in the other."""
    session = export().session()
    for _ in range(3):
        for start, stop in itertools.pairwise(cuts):
            session.accumulate(part(slice(start, stop)))
        session.apply()
    close(session.parameters(), trained())


def test_a_task_without_labels_adds_nothing() -> None:
    unlabelled = {**part(slice(1, 4))}
    module = model()
    outputs = module(torch.from_numpy(unlabelled["x"]))
    loss = 0.3 * F.mse_loss(outputs["depth_of"], torch.from_numpy(unlabelled["depth"]))
    loss.backward()
    session = export(optimizer=SGD(0.1)).session()
    metrics = session.step(unlabelled)
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-6)
    assert np.isnan(metrics["loss.logits"])
    expected = {
        name: value.detach().numpy() - (0 if value.grad is None else 0.1 * value.grad.numpy())
        for name, value in module.named_parameters()
    }
    close(session.parameters(), expected)


def test_losses_that_count_the_same_share_accumulators() -> None:
    same = L1(output="logits", target="wanted") + MSE(output="depth_of", target="depth") * 2
    assert len(export(same).manifest.shares) == 1
    assert len(export().manifest.shares) == 2
    shared_labels = CrossEntropy(output="logits") + 0.5 * CrossEntropy(output="depth_of", ignore_index=-100)
    with pytest.raises(SignatureError, match=r"wants the batch input 'target' as int64 of shape .* 4 classes"):
        export(shared_labels)


def test_means_over_different_sizes_that_share_are_right() -> None:
    """Both are divided by a multiple of the batch: 4 and 2 elements a row."""
    wanted = RNG.standard_normal((12, 4)).astype(np.float32)
    session = export(
        L1(output="logits", target="wanted") + MSE(output="depth_of", target="depth") * 2, SGD(0.1)
    ).session()
    module = model()
    outputs = module(torch.from_numpy(X))
    loss = F.l1_loss(outputs["logits"], torch.from_numpy(wanted)) + 2 * F.mse_loss(
        outputs["depth_of"], torch.from_numpy(DEPTH)
    )
    loss.backward()
    for rows in (slice(0, 5), slice(5, 12)):
        session.accumulate({"x": X[rows], "wanted": wanted[rows], "depth": DEPTH[rows]})
    session.apply()
    parameters = module.named_parameters()
    close(session.parameters(), {n: p.detach().numpy() - 0.1 * p.grad.numpy() for n, p in parameters})  # type: ignore[union-attr]


def test_evaluation_does_not_depend_on_the_cut() -> None:
    session: Any = export(metrics=[Accuracy(output="logits")]).session()
    whole = session.evaluate(BATCH)
    pieces = session.evaluate([part(slice(0, 1)), part(slice(1, 4)), part(slice(4, 12))])
    assert whole == pytest.approx(pieces, rel=1e-6)
    assert whole["loss"] == pytest.approx(theirs(model()).item(), rel=1e-6)
    assert set(whole) == {"loss", "loss.logits", "loss.depth_of", "accuracy"}


@pytest.mark.parametrize("rows", [(slice(None),), (slice(0, 3), slice(3, 12))])
def test_samples_weigh_what_the_batch_says(rows: tuple[slice, ...]) -> None:
    """Σ w·l / Σ w, over the samples that have labels."""
    session = export(CrossEntropy(output="logits", sample_weight="weights"), SGD(0.1)).session()
    module = model()
    labels, weights = torch.from_numpy(LABELS), torch.from_numpy(WEIGHTS)
    losses = F.cross_entropy(module(torch.from_numpy(X))["logits"], labels, reduction="none")
    loss = (weights * losses).sum() / weights[labels >= 0].sum()
    loss.backward()
    batch: dict[str, Any] = {"x": X, "target": LABELS, "weights": WEIGHTS}
    assert session.evaluate(batch)["loss"] == pytest.approx(loss.item(), rel=1e-6)
    for each in rows:
        session.accumulate({name: value[each] for name, value in batch.items()})
    session.apply()
    found = session.parameters()
    for name in ("trunk.weight", "classes.bias"):
        parameter = module.get_parameter(name)
        assert parameter.grad is not None
        close(found, {name: parameter.detach().numpy() - 0.1 * parameter.grad.numpy()})


def test_several_losses_go_on_under_another_optimizer() -> None:
    bundle = export(optimizer=AdamW(1e-2))
    other = bundle.with_optimizer([Group("numbers.*", frozen=True), SGD(0.1)]).bundle
    fresh = export(optimizer=[Group("numbers.*", frozen=True), SGD(0.1)])
    one, two = other.session(), fresh.session()
    for session in (one, two):
        for rows in (slice(0, 5), slice(5, 12)):
            session.accumulate(part(rows))
        session.apply()
        session.step(BATCH)
    close(one.parameters(), two.parameters(), 1e-7)
    assert one.evaluate(BATCH) == pytest.approx(two.evaluate(BATCH), rel=1e-6)


def test_several_losses_are_minimised_over_many_batches() -> None:
    cuts = [part(slice(0, 2)), part(slice(2, 7)), part(slice(7, 12))]
    session = export(hessian_vector=True).session()
    result = session.minimize(cuts, method="lbfgs", max_iter=60)
    assert result.loss == pytest.approx(session.evaluate(BATCH)["loss"], rel=1e-4)
    assert result.loss < 0.2
    assert result.gradient_norm < 1e-2
    newton = export(hessian_vector=True).session()
    assert newton.minimize(cuts, method="newton_cg", max_iter=15).loss < 0.3


def test_rules_that_measure_want_one_weight() -> None:
    with pytest.raises(SignatureError, match="means over 2 different ones"):
        export(optimizer="sophia_h:lr=1e-3")


class Auxiliary(nn.Module):
    """More outputs in training than in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.head, self.side = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Logits, and in training those of a head on the side."""
        hidden = torch.tanh(self.trunk(x))
        outputs = {"logits": self.head(hidden)}
        return {**outputs, "side": self.side(hidden)} if self.training else outputs


def test_a_head_that_only_training_has() -> None:
    torch.manual_seed(0)
    module = Auxiliary().train()
    loss = CrossEntropy(output="logits") + 0.4 * CrossEntropy(output="side")
    bundle = edgeopt.export(module, torch.zeros(2, 6), loss=loss, optimizer=SGD(0.1), output="logits", verbose=False)
    assert len(bundle.manifest.shares) == 1, "the same labels are counted once"
    assert any("without side" in decision.text for decision in bundle.decisions)
    session = bundle.session()
    batch = {"x": X, "target": LABELS}
    outputs, labels = module(torch.from_numpy(X)), torch.from_numpy(LABELS)
    main, side = F.cross_entropy(outputs["logits"], labels), F.cross_entropy(outputs["side"], labels)
    assert session.evaluate(batch)["loss"] == pytest.approx(main.item(), rel=1e-6)
    assert session.step(batch)["loss"] == pytest.approx((main + 0.4 * side).item(), rel=1e-6)


def test_sums_are_flat_and_refuse_settings_of_their_own() -> None:
    first, second = MSE(), L1()
    total = 2 * (first + 0.5 * second) + first
    assert total.parts() == ((2.0, first), (1.0, second), (1.0, first))
    for settings in ({"target": "y"}, {"reduction": "sum"}, {"output": "y"}, {"sample_weight": "w"}):
        with pytest.raises(ConfigurationError, match="to the losses of the sum"):
            WeightedSum([(1.0, first)], **settings)  # type: ignore[arg-type]
    with pytest.raises(SignatureError, match="reads the output 'nowhere'"):
        export(MSE(output="nowhere") + CrossEntropy(output="logits"))
