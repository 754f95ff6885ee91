"""Rates that follow the loss: torch's ReduceLROnPlateau, GreedyLR's rules by hand, and both in `fit`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgeopt_runtime import FitInfo, GreedyLR, HyperparameterError, ReduceLROnPlateau

rng = np.random.default_rng(3)
LOSSES = np.concatenate([1 / np.arange(1, 25), 0.05 + 0.02 * rng.random(40), 0.5 * rng.random(40)])


def rates(callback, values, first):
    found = [first]
    for value in values:
        found.append(callback.next_rate(float(value), found[-1]))
    return found


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"factor": 0.5, "patience": 2, "cooldown": 3, "threshold": 0.05, "min_lr": 0.01},
        {"patience": 0, "threshold": 0.01, "threshold_mode": "abs", "factor": 0.7, "eps": 1e-3},
        {"mode": "max", "patience": 3, "factor": 0.9},
        {"mode": "max", "patience": 1, "factor": 0.9, "threshold_mode": "abs", "threshold": 0.1},
    ],
)
def test_a_plateau_is_what_it_is_to_torch(settings):
    rule = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    theirs, expected = torch.optim.lr_scheduler.ReduceLROnPlateau(rule, **settings), [0.5]
    for loss in LOSSES:
        theirs.step(loss)
        expected.append(rule.param_groups[0]["lr"])
    assert rates(ReduceLROnPlateau(**settings), LOSSES, 0.5) == expected
    assert expected[-1] < 0.5


def test_greedy_rates_rise_while_it_gets_better_and_fall_while_it_does_not():
    greedy = GreedyLR(factor=0.5, patience=1, min_lr=0.1, max_lr=0.5)
    falling, rising = [5.0, 4.0, 3.0, 2.0, 1.0, 0.5], [9.0] * 8
    # Two better values in a row double the rate, up to the largest; two others halve it, down to the smallest.
    assert rates(greedy, falling, 0.2) == [0.2, 0.2, 0.4, 0.4, 0.5, 0.5, 0.5]
    assert rates(greedy, rising, 0.5) == [0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.1, 0.1, 0.1]


def test_greedy_rates_rest_after_a_change():
    greedy = GreedyLR(factor=0.5, patience=0, cooldown=1, warmup=2, max_lr=9.0)
    assert rates(greedy, [5, 4, 3, 2, 9, 9, 9], 1.0) == [1, 2, 2, 2, 4, 4, 4, 2]


def test_greedy_rates_start_anew_after_a_while_at_the_bottom():
    greedy = GreedyLR(factor=0.5, patience=0, min_lr=0.25, max_lr=2.0, reset_start=2)
    # The first value is better than none. Then 1, 0.5, 0.25 (once at the bottom), and the second time is the end.
    assert rates(greedy, [1, 2, 2, 2, 2, 2, 3], 1.0) == [1, 2, 1, 0.5, 0.25, 1, 2, 1]


def test_greedy_rates_may_look_at_a_mean():
    smooth = GreedyLR(factor=0.5, patience=0, max_lr=9.0, window=2)
    # Means 4, 3, 4 and 3.5.
    assert rates(smooth, [4, 2, 6, 1], 1.0) == [1, 2, 4, 2, 1]


@pytest.mark.parametrize(("every", "changes"), [("epoch", 2), ("step", 5)])
def test_they_set_the_rate_during_fit(session, make_batches, every, changes):
    before = session.hyperparameters["schedule.lr"]
    callback = ReduceLROnPlateau(0.5, patience=0, threshold=1e9, threshold_mode="abs", every=every)
    session.fit(make_batches(2, 4), epochs=3, progress=False, callbacks=[callback])
    assert session.hyperparameters["schedule.lr"] == pytest.approx(before * 0.5**changes)


def test_what_does_not_exist_is_refused(session):
    info = FitInfo("epoch", 1, 1, {"loss": 1.0})
    with pytest.raises(HyperparameterError, match="accuracy"):
        ReduceLROnPlateau(metric="accuracy")(session, info)
    with pytest.raises(HyperparameterError, match="speed"):
        ReduceLROnPlateau(hyper="speed")(session, info)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ReduceLROnPlateau(factor=1.0), "factor"),
        (lambda: ReduceLROnPlateau(patience=-1), "patience"),
        (lambda: ReduceLROnPlateau(mode="up"), "mode"),  # type: ignore[arg-type] # wrong on purpose
        (lambda: ReduceLROnPlateau(threshold_mode="both"), "threshold_mode"),  # type: ignore[arg-type] # wrong on purpose
        (lambda: ReduceLROnPlateau(every="day"), "every"),  # type: ignore[arg-type] # wrong on purpose
        (lambda: GreedyLR(warmup=-1), "warmup"),
        (lambda: GreedyLR(max_lr=1e-4), "max_lr"),
        (lambda: GreedyLR(window=0), "window"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(HyperparameterError, match=message):
        make()
