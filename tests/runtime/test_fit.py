from __future__ import annotations

import io
import sys

import numpy as np
import pytest

from edgeopt_runtime import BatchError, NonFiniteLossError, StopTraining, TrainingSession
from edgeopt_runtime.progress import Progress


def test_fit_is_a_loop_of_steps(session, packed, make_batches):
    batches = make_batches(4, 4, 4)
    history = session.fit(batches, epochs=2, progress=False)
    other = TrainingSession.load(packed, threads=1)
    assert history.steps == [other.step(batch) for _ in range(2) for batch in batches]
    for epoch, metrics in enumerate(history.epochs):
        mean = np.mean([step["loss"] for step in history.steps[3 * epoch : 3 * epoch + 3]])
        assert metrics == {"loss": pytest.approx(mean), "lr": pytest.approx(0.1)}
    assert not history.stopped


def test_batches_may_be_made_for_each_epoch(session, make_batches):
    calls: list[None] = []

    def batches():
        calls.append(None)
        return (batch for batch in make_batches(*[2] * len(calls)))

    history = session.fit(batches, epochs=3, progress=False)
    assert len(history.steps) == 1 + 2 + 3


def test_an_exhausted_generator_is_noticed(session, make_batches):
    with pytest.raises(BatchError, match=r"no batches in epoch 2\. A generator serves one epoch"):
        session.fit((batch for batch in make_batches(2)), epochs=2, progress=False)


def test_evaluation_after_each_epoch(session, make_batches):
    train, test = make_batches(8, 8), make_batches(3, 5, seed=9)
    history = session.fit(train, epochs=2, progress=False, evaluate_on=lambda: iter(test))
    assert history.epochs[-1]["evaluate.loss"] == session.evaluate(test)["loss"]
    assert set(history.epochs[0]) == {"loss", "lr", "evaluate.loss"}


def test_callbacks_see_each_step_and_epoch(session, make_batches):
    seen = []
    session.fit(
        make_batches(2, 2),
        epochs=2,
        progress=False,
        callbacks=[lambda given, info: seen.append((given is session, info.event, info.epoch, info.step))],
    )
    assert seen == [
        (True, "step", 1, 1),
        (True, "step", 1, 2),
        (True, "epoch", 1, 2),
        (True, "step", 2, 3),
        (True, "step", 2, 4),
        (True, "epoch", 2, 4),
    ]


def test_a_callback_can_end_the_training(session, make_batches):
    def enough(session, info):
        if info.step == 3:
            raise StopTraining

    history = session.fit(make_batches(2, 2), epochs=5, progress=False, callbacks=[enough])
    assert history.stopped
    assert len(history.steps) == 3
    assert len(history.epochs) == 1
    assert session.state()["step"] == 3


def test_other_errors_pass_through(session, make_batches):
    (batch,) = make_batches(2)
    with pytest.raises(NonFiniteLossError):
        session.fit([batch, {**batch, "x": np.full((2, 3), np.inf, np.float32)}], progress=False)
    assert session.state()["step"] == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_only(session, make_batches, monkeypatch):
    for stream, shown in [(Terminal(), True), (io.StringIO(), False)]:
        monkeypatch.setattr(sys, "stderr", stream)
        session.fit(make_batches(2, 2), epochs=2)
        assert bool(stream.getvalue()) is shown
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    session.fit(make_batches(2, 2), epochs=2)
    lines = terminal.getvalue().split("\n")
    assert len(lines) == 3
    assert "epoch 2/2 [========================] 2/2" in lines[1]
    assert "loss " in lines[1]


def test_progress_without_a_total_counts(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    line = Progress("epoch 1/1", None)
    line.update(1, {"loss": 0.123456})
    line.close(2, {"loss": 0.1})
    assert "epoch 1/1 2 " in terminal.getvalue()
    assert "loss 0.1235" in terminal.getvalue()
    monkeypatch.setattr(sys, "stderr", None)
    Progress("epoch 1/1", None).close(1, {})
