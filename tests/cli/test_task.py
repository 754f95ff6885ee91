"""`edgeopt export --task`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import edgeopt


@pytest.fixture
def exported(run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Export the model of model.py, and give the numbers and metrics of the bundle."""
    monkeypatch.syspath_prepend(str(folder))

    def export(*options: str) -> tuple[dict[str, float], dict[str, str], set[str]]:
        done = run("export", "model:build", *options, "--no-check", "--out", "task.edgeopt")
        assert done.code == 0, done
        manifest = edgeopt.Bundle.load("task.edgeopt").manifest
        numbers = {number.name: number.default for number in manifest.hyperparameters}
        return numbers, dict(manifest.producer), {port.name for port in manifest.signatures["summary"].outputs}

    return export


def test_a_task_says_everything(exported: Any) -> None:
    numbers, producer, reported = exported("--task", "image_classification:classes=3,total_steps=50")
    assert producer["loss"] == "CrossEntropy"
    assert reported == {"loss", "accuracy", "f1"}
    assert (numbers["schedule.lr"], numbers["schedule.warmup_steps"], numbers["schedule.total_steps"]) == (1e-3, 5, 50)
    assert numbers["clip_by_global_norm.max_norm"] == 1.0


def test_other_options_replace_parts_of_it(exported: Any) -> None:
    task = ("--task", "text_classification:classes=3,total_steps=50")
    numbers, _, reported = exported(*task, "--metric", "iou", "--lr", "1e-4")
    assert reported == {"loss", "iou"}
    assert numbers["schedule.lr"] == 1e-4
    numbers, producer, _ = exported(*task, "--optimizer", "lion:lr=1e-5", "--transform", "clip_by_value:clip_value=1")
    assert producer["optimizer"].startswith("Lion")
    assert "clip_by_global_norm.max_norm" not in numbers
    numbers, producer, _ = exported(
        *task, "--schedule", "warmup_cosine:warmup_steps=2,total_steps=9", "--loss", "focal"
    )
    assert (producer["loss"], numbers["schedule.lr"], numbers["schedule.total_steps"]) == ("Focal", 2e-5, 9)
    numbers, producer, _ = exported(*task, "--optimizer-state", "int8")
    assert (numbers["schedule.lr"], numbers["schedule.total_steps"]) == (2e-5, 50)
    assert "QuantizedState" in producer["optimizer"]


def test_one_of_both_is_needed(run: Any) -> None:
    result = run("export", "model:build", "--out", "task.edgeopt")
    assert result.code == 2
    assert "--task" in result
    wrong = run("export", "model:build", "--task", "image_classification", "--out", "task.edgeopt")
    assert wrong.code == 2
    assert "classes" in wrong
