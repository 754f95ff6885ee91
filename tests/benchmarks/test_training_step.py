from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "training_step.py"


def test_a_short_run_reports_contenders_that_train_the_same(tmp_path: Path) -> None:
    choice = ["--models", "cnn", "--optimizers", "adamw", "--threads", "1"]
    brief = ["--processes", "1", "--rounds", "2", "--block", "2", "--patience", "0", "--out", str(tmp_path)]
    run = subprocess.run([sys.executable, str(SCRIPT), *choice, *brief], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr

    report = json.loads((tmp_path / "training_step.json").read_text())
    (result,) = report["results"]
    assert (result["model"], result["optimizer"], result["threads"]) == ("cnn", "adamw", 1)
    assert list(result["contenders"]) == ["edgeopt", "torch", "torch foreach", "torch fused"]
    assert all(row["median_ms"] > 0 for row in result["contenders"].values())
    assert result["relative_loss_difference"] < 1e-3
    assert report["machine"]["cores"] >= 1

    table = (tmp_path / "training_step.md").read_text()
    assert "| CNN | AdamW | 1 |" in table
    assert (tmp_path / "training_step.png").read_bytes().startswith(b"\x89PNG")
