from __future__ import annotations

from typing import Any

import array_api_compat.numpy
import array_api_compat.torch
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

import edgeopt
from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.losses import CTC, ArraySpec
from edgeopt.optimizers import SGD


def drawn(seed: int, batch: int, time: int, classes: int, labels: int, blank: int) -> tuple[np.ndarray[Any, Any], ...]:
    """Scores, labels that are never the blank, and lengths of which some are 0 and some too long for their steps."""
    rng = np.random.default_rng(seed)
    scores = 2 * rng.normal(size=(batch, time, classes))
    target = rng.integers(0, classes - 1, (batch, labels))
    target = np.where(target >= blank, target + 1, target)
    return scores, target, rng.integers(1, time + 1, batch), rng.integers(0, labels + 1, batch)


def of_torch(scores: torch.Tensor, target: Any, steps: Any, labels: Any, **settings: Any) -> torch.Tensor:
    return functional.ctc_loss(scores.log_softmax(2).transpose(0, 1), target, steps, labels, **settings)


@settings(deadline=None)  # the first call imports half of torch
@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(1, 4),
    time=st.integers(1, 9),
    classes=st.integers(2, 5),
    labels=st.integers(1, 5),
    last=st.booleans(),
    reduction=st.sampled_from(["mean", "sum"]),
    time_first=st.booleans(),
)
def test_equals_torch(
    seed: int, batch: int, time: int, classes: int, labels: int, last: bool, reduction: Any, time_first: bool
) -> None:
    blank = classes - 1 if last else 0
    scores, *rest = drawn(seed, batch, time, classes, labels, blank)
    targets = [torch.tensor(each) for each in rest]
    expected_at = torch.tensor(scores, requires_grad=True)
    expected = of_torch(expected_at, *targets, blank=blank, reduction=reduction, zero_infinity=True)
    expected.backward()

    loss = CTC(blank, zero_infinity=True, time_first=time_first, reduction=reduction)
    ordered = scores.swapaxes(0, 1) if time_first else scores
    total, weight = loss.terms(array_api_compat.numpy, ordered, *rest)
    np.testing.assert_allclose(total / weight, expected.detach(), rtol=1e-11, atol=1e-11)
    actual_at = torch.tensor(ordered, requires_grad=True)
    total, weight = loss.terms(array_api_compat.torch, actual_at, *targets)
    (total / weight).backward()
    assert actual_at.grad is not None
    assert expected_at.grad is not None
    gradient = actual_at.grad.transpose(0, 1) if time_first else actual_at.grad
    torch.testing.assert_close(gradient, expected_at.grad, rtol=1e-9, atol=1e-11)


def test_labels_that_do_not_fit_have_an_infinite_loss(xp: Any) -> None:
    # Two equal labels need a blank between them, so three steps.
    arrays = [xp.asarray(each) for each in (np.zeros((1, 2, 3)), np.array([[1, 1]]), np.array([2]), np.array([2]))]
    assert np.isinf(float(CTC().terms(xp, *arrays)[0]))
    assert float(CTC(zero_infinity=True).terms(xp, *arrays)[0]) == 0.0


def test_padding_may_be_anything(xp: Any) -> None:
    scores, target, steps, labels = drawn(5, 3, 6, 4, 3, 0)
    padding = np.arange(3) >= labels[:, None]
    totals = [
        float(CTC(zero_infinity=True).terms(xp, *map(xp.asarray, (scores, filled, steps, labels)))[0])
        for filled in (np.where(padding, -1, target), np.where(padding, 99, target), np.where(padding, 0, target))
    ]
    np.testing.assert_allclose(totals, totals[0], rtol=1e-12)


def test_long_sequences_in_float32(xp: Any) -> None:
    scores, target, steps, labels = drawn(1, 2, 1500, 6, 100, 0)
    exact = of_torch(*(torch.tensor(each) for each in (scores, target, steps, labels)), reduction="sum")
    arrays = (xp.asarray(scores, dtype=xp.float32), *map(xp.asarray, (target, steps, labels)))
    np.testing.assert_allclose(float(CTC(reduction="sum").terms(xp, *arrays)[0]), float(exact), rtol=1e-5)


def test_trains_in_a_bundle_as_in_torch() -> None:
    torch.manual_seed(0)

    class Reader(torch.nn.Module):
        """A recurrent reader of lines, as OCR has it."""

        def __init__(self) -> None:
            super().__init__()
            self.cells = torch.nn.GRU(5, 8, batch_first=True, bidirectional=True)
            self.classes = torch.nn.Linear(16, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.classes(self.cells(x)[0])
            return y

    model, rng = Reader(), np.random.default_rng(0)
    x = rng.normal(size=(3, 10, 5)).astype(np.float32)
    bundle = edgeopt.export(
        model,
        torch.tensor(x),
        loss=CTC(),
        optimizer=SGD(0.1),
        dynamic_shapes={"x": {1: "time"}},
        verbose=False,
    )
    session, optimizer = bundle.session(), torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        rows, time = 2 + step, 8 + step
        x = rng.normal(size=(rows, time, 5)).astype(np.float32)
        target = rng.integers(1, 6, (rows, 3))
        steps, labels = rng.integers(7, time + 1, rows), rng.integers(0, 4, rows)
        batch = {"x": x, "target": target, "input_lengths": steps, "target_lengths": labels}
        optimizer.zero_grad()
        loss = of_torch(model(torch.tensor(x)), *map(torch.tensor, (target, steps, labels)))
        loss.backward()
        optimizer.step()
        np.testing.assert_allclose(session.step(batch)["loss"], loss.item(), rtol=2e-5)


@pytest.mark.parametrize(
    ("loss", "shape", "message"),
    [
        (CTC(), ("batch", 5), "one axis each for batch, time and classes"),
        (CTC(), ("batch", "time", "classes"), "fixed number of classes"),
        (CTC(7), ("batch", "time", 5), "blank=7, but there are 5"),
    ],
)
def test_unfit_scores_are_refused(loss: CTC, shape: tuple[int | str, ...], message: str) -> None:
    with pytest.raises(SignatureError, match=message):
        loss.targets(ArraySpec("scores", "float32", shape))


@pytest.mark.parametrize("values", [{"blank": -1}, {"target": "input_lengths"}], ids=str)
def test_impossible_settings_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(values))):
        CTC(**values)
