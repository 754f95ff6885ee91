from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from edgeopt_runtime import NonFiniteLossError, TrainingSession


def test_training_learns_and_is_saved(run: Any, bundle: Path, folder: Path) -> None:
    data = ("--data", folder / "train.npz", "--validation", folder / "test.npz")
    result = run("train", bundle, *data, "--epochs", 15, "--out", "trained.edgeopt")
    assert result.code == 0
    assert result.out == "trained on 150 samples, 15 epochs; saved to trained.edgeopt\n"
    assert "15/15 " in result.err
    assert "val accuracy" in result.err
    trained, fresh = TrainingSession.load("trained.edgeopt"), TrainingSession.load(bundle)
    assert trained.state()["optimizer.step"] == 15 * 5
    assert fresh.state()["optimizer.step"] == 0
    evaluated = run("evaluate", "trained.edgeopt", "--data", folder / "test.npz", "--json")
    assert json.loads(evaluated.out)["accuracy"] > 0.9


def test_training_equals_the_loop_by_hand(run: Any, bundle: Path, folder: Path) -> None:
    data = ("--data", folder / "train.npz", "--batch-size", 40, "--seed", 3)
    assert run("train", bundle, *data, "--hyper", "lr=0.05", "--threads", 1, "--out", "trained.edgeopt").code == 0
    session = TrainingSession.load(bundle, threads=1)
    session.set_hyper(lr=0.05)
    with np.load(folder / "train.npz") as file:
        points, labels = file["input"], file["target"]
    order = np.random.default_rng(3).permutation(150)
    for start in range(0, 150, 40):
        session.step((points[order[start : start + 40]], labels[order[start : start + 40]]))
    trained = TrainingSession.load("trained.edgeopt")
    assert trained.hyperparameters["schedule.lr"] == 0.05
    for name, array in session.state().items():
        np.testing.assert_array_equal(trained.state()[name], array)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hyper", "speed=1"], "HyperparameterError E140"),
        (["--hyper", "lr"], "'lr' sets no hyperparameter; write name=value"),
        (["--provider", "AbacusExecutionProvider"], "ProviderError E130"),
    ],
)
def test_options_that_cannot_be_met_are_errors(
    run: Any, bundle: Path, folder: Path, options: list[str], message: str
) -> None:
    result = run("train", bundle, "--data", folder / "train.npz", "--out", "x.edgeopt", *options)
    assert result.code == 1
    assert message in result
    assert not Path("x.edgeopt").exists()


def test_a_loss_that_is_not_finite_stops_or_is_skipped(run: Any, bundle: Path, folder: Path) -> None:
    with np.load(folder / "train.npz") as file:
        points, labels = file["input"], file["target"]
    points[0] = np.nan
    np.savez("bad.npz", input=points, target=labels)
    stopped = run("train", bundle, "--data", "bad.npz", "--out", "x.edgeopt")
    assert stopped.code == 1
    assert "NonFiniteLossError E120" in stopped
    assert "--on-nonfinite skip" in stopped
    assert "on_nonfinite=" not in stopped
    skipped = run("train", bundle, "--data", "bad.npz", "--out", "x.edgeopt", "--on-nonfinite", "skip")
    assert skipped.code == 0
    assert TrainingSession.load("x.edgeopt").state()["optimizer.step"] == 4


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_json_is_a_line_for_each_epoch_and_nothing_else(run: Any, bundle: Path, folder: Path) -> None:
    data = ("--data", folder / "train.npz", "--validation", folder / "test.npz")
    result = run("train", bundle, *data, "--epochs", 2, "--out", "trained.edgeopt", "--json")
    first, second, last = lines(result.out)
    assert result.err == ""
    assert [first[key] for key in ("event", "epoch", "epochs", "step")] == ["epoch", 1, 2, 5]
    assert first["metrics"].keys() == {"loss", "lr", "accuracy", "evaluate.loss", "evaluate.accuracy"}
    assert second["metrics"]["loss"] < first["metrics"]["loss"]
    assert last == {"event": "finished", "epochs": 2, "step": 10, "bundle": "trained.edgeopt"}


def test_numbers_that_json_does_not_have_are_null(run: Any, bundle: Path, folder: Path) -> None:
    with np.load(folder / "train.npz") as file:
        np.savez("bad.npz", input=np.full_like(file["input"], np.nan), target=file["target"])
    options = ("--out", "x.edgeopt", "--on-nonfinite", "ignore", "--json")
    first, _ = lines(run("train", bundle, "--data", "bad.npz", *options).out)
    assert first["metrics"]["loss"] is None


def test_the_trained_model_is_written_as_a_plain_file(run: Any, bundle: Path, folder: Path) -> None:
    files = ("--out", "trained.edgeopt", "--export-inference", "trained.onnx")
    result = run("train", bundle, "--data", folder / "train.npz", *files)
    assert result.out.endswith("saved to trained.edgeopt\nwrote trained.onnx\n")
    again = run("export-inference", "trained.edgeopt", "--out", "again.onnx")
    assert "wrote again.onnx: " in again
    assert Path("again.onnx").read_bytes() == Path("trained.onnx").read_bytes()
    with np.load(folder / "test.npz") as file:
        points = file["input"]
    runtime = onnxruntime.InferenceSession("trained.onnx", providers=["CPUExecutionProvider"])
    expected = np.asarray(TrainingSession.load("trained.edgeopt").predict(points))
    np.testing.assert_allclose(runtime.run(None, {"input": points})[0], expected, rtol=1e-5, atol=1e-6)


def stop_after(count: int, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise an error in place of a step, as Ctrl-C does at any place."""
    step = TrainingSession._step
    done: list[Any] = []

    def counted(session: TrainingSession, *batch: Any) -> dict[str, float]:
        if len(done) == count:
            raise error
        done.append(batch)
        return step(session, *batch)

    monkeypatch.setattr(TrainingSession, "_step", counted)


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_saves_what_was_learned(
    run: Any, bundle: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    stop_after(7, KeyboardInterrupt(), monkeypatch)
    files = ("--out", "trained.edgeopt", "--export-inference", "trained.onnx")
    options = ("--epochs", 9, *files, *(["--json"] if as_json else []))
    result = run("train", bundle, "--data", folder / "train.npz", *options)
    assert result.code == 130
    assert TrainingSession.load("trained.edgeopt").state()["optimizer.step"] == 7
    assert Path("trained.onnx").exists()
    if as_json:
        event = {"event": "interrupted", "epochs": 1, "step": 7, "bundle": "trained.edgeopt"}
        assert lines(result.out)[-1] == {**event, "inference": "trained.onnx"}
    else:
        assert "stopped after 7 steps, 1 whole epochs; saved to trained.edgeopt" in result.out


def test_ctrl_c_before_the_first_step_writes_nothing(
    run: Any, bundle: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(0, KeyboardInterrupt(), monkeypatch)
    result = run("train", bundle, "--data", folder / "train.npz", "--out", "trained.edgeopt")
    assert result.code == 130
    assert "nothing was trained" in result.err
    assert not Path("trained.edgeopt").exists()


def test_an_error_leaves_the_last_epoch(run: Any, bundle: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_after(12, NonFiniteLossError("`loss` is nan", {}), monkeypatch)
    result = run("train", bundle, "--data", folder / "train.npz", "--epochs", 9, "--out", "trained.edgeopt")
    assert result.code == 1
    assert "trained.edgeopt holds the state after epoch 2" in result.err
    assert TrainingSession.load("trained.edgeopt").state()["optimizer.step"] == 10


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere/x.edgeopt", "there is no folder nowhere; make it first"),
        ("full", "is a folder with other things in it"),
        ("folder.edgeopt", "is a folder with other things in it"),
        ("file/x.edgeopt", "there is no folder file"),
        ("fifo.edgeopt", "is no ordinary file"),
    ],
)
def test_where_it_goes_is_looked_at_first(
    run: Any, bundle: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, place: str, message: str
) -> None:
    for name in ("full", "folder.edgeopt"):
        Path(name).mkdir()
        (Path(name) / "letters").write_text("mine", encoding="utf-8")
    Path("file").touch()
    os.mkfifo("fifo.edgeopt")
    stop_after(0, AssertionError("a step was made"), monkeypatch)
    result = run("train", bundle, "--data", folder / "train.npz", "--out", place)
    assert result.code == 1
    assert "CommandError E300" in result
    assert message in result


def test_validation_data_that_do_not_fit_are_found_before_the_first_step(
    run: Any, bundle: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with np.load(folder / "test.npz") as file:
        # More digits than float32 has.
        np.savez("wrong.npz", input=file["input"].astype(np.float64) + 1e-12, target=file["target"])
    stop_after(0, AssertionError("a step was made"), monkeypatch)
    data = ("--data", folder / "train.npz", "--validation", "wrong.npz")
    result = run("train", bundle, *data, "--out", "x.edgeopt")
    assert result.code == 1
    assert "BatchError E110" in result
    assert "must be float32, but is float64" in result
