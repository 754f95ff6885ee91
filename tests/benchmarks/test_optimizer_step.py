from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "optimizer_step.py"


def test_a_short_run_reports_contenders_that_update_the_same(tmp_path: Path) -> None:
    brief = ["--parameters", "mobilenet_v2", "--processes", "1", "--rounds", "2", "--block", "2", "--patience", "0"]
    run = subprocess.run(
        [sys.executable, str(SCRIPT), *brief, "--out", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    (result,) = json.loads((tmp_path / "optimizer_step.json").read_text())["results"]
    assert list(result["contenders"]) == ["edgeopt", "torch", "torch foreach", "torch fused"]
    assert result["tensors"] == 158
    assert result["relative_difference"] < 1e-4
    assert "| mobilenet_v2 | 158 |" in (tmp_path / "optimizer_step.md").read_text()
