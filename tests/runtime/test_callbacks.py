"""Callbacks of `fit`: when they stop, what they keep and what they write."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing import event_accumulator

import edgeopt
from edgeopt_runtime import CallbackError, FitInfo, StateError, StopTraining, StorageError, TrainingSession
from edgeopt_runtime.callbacks import BestCheckpoint, CSVLog, EarlyStopping, JSONLinesLog, TensorBoard
from edgeopt_runtime.progress import Progress

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
Y = (X @ np.ones((4, 1), np.float32)).astype(np.float32)


@pytest.fixture(scope="module")
def bundle() -> edgeopt.Bundle:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    return edgeopt.export(model, torch.zeros(2, 4), loss="mse", optimizer="sgd:lr=0.05", verbose=False)


@pytest.fixture
def session(bundle: edgeopt.Bundle) -> TrainingSession:
    return bundle.session()


def told(session: Any, callback: Any, values: list[float], metric: str = "evaluate.loss") -> int:
    """Show a callback epochs with these values, a step before each; how many it has seen when it stops training."""
    for epoch, value in enumerate(values, 1):
        session.step((X, Y))
        callback(session, FitInfo("step", epoch, epoch, {"loss": 1.0}))
        reported: dict[str, Any] = {"loss": 1.0, metric: value, "table": np.eye(2)}
        try:
            callback(session, FitInfo("epoch", epoch, epoch, reported))
        except StopTraining:
            return epoch
    return len(values)


@pytest.mark.parametrize(
    ("settings", "values", "stops", "best"),  # stops: 0 where it does not
    [
        ({"patience": 1}, [3.0, 2.0, 2.5, 2.5, 1.0], 4, 2),
        ({"patience": 0}, [3.0, 2.0, 2.0, 1.0], 3, 2),
        ({"patience": 1, "min_delta": 0.5}, [3.0, 2.8, 2.6, 1.0], 3, 1),
        ({"patience": 1, "mode": "max"}, [1.0, 2.0, 1.5, 1.5], 4, 2),
        ({"patience": 0}, [math.nan, 1.0], 1, 0),
        ({"patience": 1}, [1.0, math.nan, 0.5, 0.6], 0, 3),
    ],
)
def test_training_stops_when_nothing_gets_better(
    session: Any, settings: Any, values: list[float], stops: int, best: int
) -> None:
    callback = EarlyStopping(**settings)
    assert told(session, callback, values) == (stops or len(values))
    assert (callback.best_epoch, callback.stopped_epoch) == (best, stops)


def test_the_best_weights_come_back(session: Any) -> None:
    weights = []

    def remember(session: Any, info: FitInfo) -> None:
        if info.event == "epoch":
            weights.append(session.parameters()["weight"])

    values = iter([3.0, 1.0, 2.0, 2.0])

    def evaluate(session: Any, info: FitInfo) -> None:
        if info.event == "epoch":
            info.metrics["own"] = next(values)

    stopping = EarlyStopping("own", patience=1, mode="min")
    history = session.fit([(X, Y)], epochs=9, progress=False, callbacks=[evaluate, remember, stopping])
    assert history.stopped
    assert len(history.epochs) == 4
    assert stopping.best == 1.0
    np.testing.assert_array_equal(session.parameters()["weight"], weights[1])


@pytest.mark.parametrize("optimizer", ["schedule_free_adamw:lr=0.1", "averaged"])
def test_averages_come_back_too(optimizer: str) -> None:
    rule: Any = edgeopt.optimizers.Averaged(edgeopt.optimizers.SGD(0.1)) if optimizer == "averaged" else optimizer
    torch.manual_seed(0)
    session = edgeopt.export(
        torch.nn.Linear(4, 1), torch.zeros(2, 4), loss="mse", optimizer=rule, verbose=False
    ).session()
    stopping, predicted = EarlyStopping(patience=1), []
    values = [3.0, 1.0, 2.0, 2.0]

    def train() -> None:
        for epoch, value in enumerate(values, 1):
            session.step((X, Y))
            predicted.append(session.predict(X))
            stopping(session, FitInfo("epoch", epoch, epoch, {"evaluate.loss": value}))

    with pytest.raises(StopTraining):
        train()
    np.testing.assert_array_equal(np.asarray(session.predict(X)), np.asarray(predicted[1]))
    with pytest.raises(StateError, match="The state lacks"):
        session.restore({})


@pytest.mark.parametrize(
    ("metric", "better"), [("evaluate.loss", 0.5), ("evaluate.f1", 2.0), ("evaluate.loss.depth", 0.5), ("mse", 0.5)]
)
def test_the_name_says_what_is_better(session: Any, metric: str, better: float) -> None:
    callback = EarlyStopping(metric, patience=5)
    told(session, callback, [1.0, better], metric)
    assert callback.best == better


def test_a_name_that_does_not_say_it_needs_a_mode() -> None:
    with pytest.raises(CallbackError, match='its name does not say: give mode="min" or "max"'):
        EarlyStopping("evaluate.own")


@pytest.mark.parametrize("callback", [EarlyStopping("evaluate.f1"), BestCheckpoint("nowhere", "table", mode="min")])
def test_a_metric_that_is_not_there_is_named_with_those_that_are(session: Any, callback: Any) -> None:
    with pytest.raises(CallbackError, match=r"after an epoch; there are loss, evaluate\.loss\."):
        told(session, callback, [1.0])


def test_the_best_state_is_saved_and_goes_on(session: Any, tmp_path: Path) -> None:
    path = tmp_path / "best.edgeopt"
    callback = BestCheckpoint(path)
    told(session, callback, [3.0, 1.0])
    best = session.state()
    told(session, callback, [2.0])
    assert callback.best_epoch == 2
    resumed = TrainingSession.load(path)
    for name, value in best.items():
        np.testing.assert_array_equal(resumed.state()[name], value)


def test_a_disk_that_fails_leaves_the_file_before(session: Any, tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "best.edgeopt"
    callback = BestCheckpoint(path)
    told(session, callback, [3.0])
    before = path.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(StorageError):
        told(session, callback, [1.0])
    assert path.read_bytes() == before


def test_logs_hold_what_happened(session: Any, tmp_path: Path) -> None:
    logs = [JSONLinesLog(tmp_path / "a.jsonl"), CSVLog(tmp_path / "a.csv"), CSVLog(tmp_path / "s.csv", each="step")]
    history = session.fit([(X, Y)] * 3, epochs=2, progress=False, callbacks=logs, evaluate_on=[(X, Y)])
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [line["evaluate.loss"] for line in lines] == [epoch["evaluate.loss"] for epoch in history.epochs]
    assert [(line["epoch"], line["step"]) for line in lines] == [(1, 3), (2, 6)]
    rows = list(csv.DictReader((tmp_path / "s.csv").read_text().splitlines()))
    assert [float(row["loss"]) for row in rows] == [step["loss"] for step in history.steps]
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 3


def test_logs_take_what_is_no_number_and_go_on(session: Any, tmp_path: Path) -> None:
    path, table = tmp_path / "a.jsonl", tmp_path / "a.csv"
    for append in (False, True):
        told(session, JSONLinesLog(path, append=append), [math.nan])
        told(session, CSVLog(table, append=append), [math.inf])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["evaluate.loss"] for line in lines] == [None, None]
    assert lines[0]["table"] == [[1.0, 0.0], [0.0, 1.0]]
    rows = list(csv.reader(table.read_text().splitlines()))
    assert rows[0] == ["epoch", "step", "loss", "evaluate.loss"]
    assert len(rows) == 3
    with pytest.raises(CallbackError, match="no column for other"):
        told(session, CSVLog(table, append=True), [1.0], "other")


def test_logs_take_numbers_of_numpy_and_go_on_after_a_line_that_was_cut(session: Any, tmp_path: Path) -> None:
    path, table = tmp_path / "a.jsonl", tmp_path / "a.csv"
    path.write_text('{"epoch": 1')
    table.write_text("epoch,step,loss,n\n1,1,0.")
    reported: dict[str, Any] = {"loss": np.float32(0.5), "n": np.int64(3)}
    for log in (JSONLinesLog(path, append=True), CSVLog(table, append=True)):
        log(session, FitInfo("epoch", 2, 2, reported))
    assert json.loads(path.read_text().splitlines()[1]) == {"epoch": 2, "step": 2, "loss": 0.5, "n": 3}
    assert table.read_text().splitlines()[2] == "2,2,0.5,3.0"


def test_what_was_there_stays_until_there_is_something_else(session: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("before")
    log = JSONLinesLog(path)
    assert path.read_text() == "before"
    told(session, log, [1.0])
    assert "before" not in path.read_text()


def test_a_log_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        CSVLog(tmp_path / "missing" / "a.csv")


def test_tensorboard_shows_what_was_written(session: Any, tmp_path: Path) -> None:
    """As TensorBoard's own reader has it."""
    session.fit([(X, Y)] * 2, epochs=3, evaluate_on=[(X, Y)], progress=False, callbacks=[TensorBoard(tmp_path)])
    read = event_accumulator.EventAccumulator(str(tmp_path))
    read.Reload()
    assert set(read.Tags()["scalars"]) >= {"step/loss", "epoch/loss", "epoch/evaluate.loss"}
    assert [event.step for event in read.Scalars("step/loss")] == [1, 2, 3, 4, 5, 6]
    losses = [event.value for event in read.Scalars("epoch/evaluate.loss")]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] == pytest.approx(session.evaluate((X, Y))["loss"], rel=1e-6)


def test_without_a_package_that_writes_for_tensorboard_it_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("edgeopt_runtime.callbacks.tensorboard.WRITERS", ("no_such_package",))
    with pytest.raises(CallbackError, match="pip install tensorboardX"):
        TensorBoard(tmp_path)


@pytest.mark.parametrize(
    "make",
    [
        lambda: EarlyStopping(patience=-1),
        lambda: EarlyStopping(mode="least"),  # type: ignore[arg-type]
        lambda: EarlyStopping(min_delta=math.nan),
        lambda: BestCheckpoint("x", every=0),
        lambda: CSVLog("x", each="batch"),  # type: ignore[arg-type]
    ],
)
def test_settings_without_a_meaning_are_refused(make: Any) -> None:
    with pytest.raises(CallbackError):
        make()


def shown(monkeypatch: Any, stream: io.StringIO, terminal: str, later: int = 1) -> str:
    times = iter([0.0, 1.0, 2.0, 4.0])
    monkeypatch.setattr("time.monotonic", lambda: next(times))
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", terminal)
    line = Progress("epoch 1/2", 4, later=later)
    line.update(1, {"loss": 0.5, "table": np.eye(2)})
    line.update(2, {"loss": 0.25})
    line.close(4, {"loss": 0.125})
    return stream.getvalue()


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_line_says_how_long_it_will_take(monkeypatch: Any) -> None:
    lines = [line.rstrip() for line in shown(monkeypatch, Terminal(), "xterm").split("\r")[1:]]
    assert lines == [
        "epoch 1/2 [======                  ] 1/4  1.0/s  0:07 left  loss 0.5",
        "epoch 1/2 [============            ] 2/4  1.0/s  0:06 left  loss 0.25",
        "epoch 1/2 [========================] 4/4  1.0/s  0:04 left  loss 0.125",
    ]


def test_the_line_never_goes_over_the_edge(monkeypatch: Any) -> None:
    """What wraps cannot be rewritten: each update would leave a line behind."""
    monkeypatch.setenv("COLUMNS", "44")
    lines = shown(monkeypatch, Terminal(), "xterm").rstrip("\n").split("\r")[1:]
    assert [line.rstrip() for line in lines] == [
        "epoch 1/2 [======                  ] 1/4  1",
        "epoch 1/2 [============            ] 2/4  1",
        "epoch 1/2 [========================] 4/4  1",
    ]
    assert max(map(len, lines)) == 43


def test_a_terminal_that_cannot_rewrite_gets_a_line_an_epoch(monkeypatch: Any) -> None:
    text = shown(monkeypatch, Terminal(), "dumb", later=0)
    assert text == "epoch 1/2 [========================] 4/4  4.0/s  loss 0.125\n"


def test_a_notebook_gets_the_line_though_it_is_no_terminal(monkeypatch: Any) -> None:
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    assert shown(monkeypatch, stream, "dumb").count("\r") == 3


def test_a_file_gets_nothing(monkeypatch: Any) -> None:
    assert shown(monkeypatch, io.StringIO(), "xterm") == ""
