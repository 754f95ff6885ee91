"""The runtime needs numpy, onnxruntime and safetensors, and the rest of the distribution says what it lacks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest

# What the extras bring. Where it is installed, imports of it are made to fail.
EXTRAS = ("ml_dtypes", "onnx", "onnx_ir", "onnxscript", "rich", "torch", "typer")
BLOCK = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r}))\n"

TRAIN = """
import json
from edgeopt_runtime import TrainingSession
import numpy
with numpy.load(sys.argv[2]) as file:
    batch = file["batch.0.0"], file["batch.0.1"]
session = TrainingSession.load(sys.argv[1], threads=1)
metrics = session.step(batch)
session.save(sys.argv[3])
session.export_inference(sys.argv[4])
print(json.dumps([metrics, sorted(name for name in sys.modules if "." not in name)]))
"""


@pytest.fixture
def run(tmp_path: Path) -> Any:
    def run_python(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", BLOCK + code, *map(str, arguments)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return run_python


def test_the_base_install_requires_three_packages() -> None:
    base = [line for line in requires("edgeopt") or [] if "extra ==" not in line]
    assert {re.split(r"[<>=!~ ;\[]", line)[0] for line in base} == {"numpy", "onnxruntime", "safetensors"}


def test_a_bundle_trains_without_any_extra(run: Any, case: Any, tmp_path: Path) -> None:
    saved, inference = tmp_path / "mine.edgeopt", tmp_path / "model.onnx"
    done = run(TRAIN, case.path, case.path.with_suffix(".npz"), saved, inference)
    assert done.returncode == 0, done.stderr
    metrics, modules = json.loads(done.stdout)
    assert metrics["loss"] == pytest.approx(float(case.expected["step.0.loss"]), rel=2e-5)
    assert saved.stat().st_size > 0
    assert inference.stat().st_size > 0
    assert "edgeopt" not in modules, "the runtime imports nothing of the SDK"


def test_the_package_imports_without_any_extra(run: Any) -> None:
    done = run("import edgeopt; print(dir(edgeopt))")
    assert done.returncode == 0, done.stderr
    assert "export" in done.stdout


def test_the_command_says_what_to_install(run: Any) -> None:
    done = run("from edgeopt.cli import main; main()")
    assert done.returncode == 1
    assert 'pip install "edgeopt[export]"' in done.stderr
    assert "Traceback" not in done.stderr
