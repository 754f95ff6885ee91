"""What a session's process grows by, in a process of its own: loading, the first step, and the steps after it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import edgeopt

MIB = 2**20

STEPS = """
import json, sys
import numpy as np
import edgeopt_runtime.session
from edgeopt_runtime import TrainingSession

def resident(which="VmRSS"):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(which))

imported = resident()
session = TrainingSession.load(sys.argv[1], threads=1)
grown = [resident() - imported]
batch = np.ones((8, 1024), np.float32), np.zeros(8, np.int64)
for _ in range(12):
    session.step(batch)
    grown.append(resident() - imported)
print(json.dumps([*grown, resident("VmHWM") - imported]))
"""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(1024, 1024), torch.nn.ReLU())]
    bundle = edgeopt.export(
        torch.nn.Sequential(*layers, torch.nn.Linear(1024, 4)),
        torch.zeros(8, 1024),
        loss="cross_entropy",
        optimizer="adamw:lr=1e-3",
        verbose=False,
    )
    path = tmp_path_factory.mktemp("bundles") / "wide.edgeopt"
    bundle.save(path)
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_a_process_grows_by_what_the_state_needs_and_then_no_more(packed: Path) -> None:
    finished = subprocess.run([sys.executable, "-c", STEPS, packed], capture_output=True, text=True, check=True)
    *grown, peak = json.loads(finished.stdout)
    state = packed.stat().st_size
    # One copy, of which the accumulators are no part before something is accumulated.
    assert grown[0] < state + 16 * MIB
    # What is read and what is written; activations are small here, gradients die as soon as they are used.
    assert peak < 2.3 * state + 32 * MIB
    # A memory pattern would take as much as all activations once more in the second step.
    assert grown[-1] < grown[2] + 8 * MIB
