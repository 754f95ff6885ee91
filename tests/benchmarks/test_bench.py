"""One short run of the whole command; nothing here judges a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "bench.py"
BRIEF = ("--workloads", "cnn", "--peers", "edgeopt", "torch", "--threads", "1", "--quick")


def run(folder: Path, *options: str) -> str:
    command = [sys.executable, str(SCRIPT), *options, "--build", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("benchmark")
    said = run(path, *BRIEF)
    assert said.count("\n") == 2
    return path


def test_contenders_train_the_same_and_everything_is_measured(folder: Path) -> None:
    records = json.loads((folder / "results.json").read_text())["records"]
    assert [(record["workload"], record["peer"]) for record in records] == [("cnn", "edgeopt"), ("cnn", "torch")]
    for record in records:
        assert record["cannot"] == ""
        assert record["median_ms"] > 0
        assert record["gemm_flops"] > 1e9
        assert record["copy_bytes"] > 1e8
        assert record["first_step_seconds"] > 0
    ours, theirs = (record["losses"][:6] for record in records)
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert theirs[-1] < 0.9 * theirs[0]
    assert (folder / "results.png").read_bytes().startswith(b"\x89PNG")


def test_what_was_measured_is_not_measured_again(folder: Path) -> None:
    before = (folder / "results.json").read_text()
    assert run(folder, *BRIEF) == ""
    assert (folder / "results.json").read_text() == before


def test_the_report_says_what_was_counted(folder: Path) -> None:
    facts = json.loads((folder / "results.json").read_text())["facts"]
    # Forward pass and both gradients of each layer, but none of the first layer's input.
    first, second, last = 32 * 28 * 28 * 16 * 9, 32 * 14 * 14 * 32 * 16 * 9, 32 * 1568 * 10
    assert facts["cnn"]["flops"] == 2 * (2 * first + 3 * second + 3 * last)
    assert facts["cnn"]["update_bytes"] == 28 * facts["cnn"]["trained"]
    assert "| small CNN, batch 32 |" in (folder / "results.md").read_text()


def test_unknown_words_are_answered_with_the_known_ones(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--workloads", "lenet", "--build", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Nothing is called 'lenet'; there are mlp-1, mlp-32")
