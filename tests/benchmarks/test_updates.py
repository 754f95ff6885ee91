"""The update alone: what the contenders do is the same, or as near as narrow state can be."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from peers import PEERS
from workloads import WORKLOADS
from workloads.facts import main as write_facts

WORKLOAD = WORKLOADS["update-1m"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("update")
    write_facts(WORKLOAD.name, str(path))
    return path


def values(name: str, folder: Path) -> list[float]:
    peer = PEERS[name]
    module = import_module(f"peers.{peer.module}")
    own = folder / name
    own.mkdir(exist_ok=True)
    module.prepare(WORKLOAD, peer.variant, own)
    step = module.load(WORKLOAD, peer.variant, own, 1)
    found = []
    for number in range(4):
        assert step(WORKLOAD.batch(number)) == 0.0
        found.append(step.check())
    return found


def test_contenders_update_the_same(folder: Path) -> None:
    expected = np.array(values("torch", folder))
    learned = np.ptp(expected)
    assert learned > 0
    assert np.abs(np.array(values("torch-fused", folder)) - expected).max() < 1e-3 * learned
    assert np.abs(np.array(values("edgeopt", folder)) - expected).max() < 1e-3 * learned
    narrow = np.abs(np.array(values("edgeopt-8bit", folder)) - expected).max()
    assert 0 < narrow < 0.1 * learned
    full, small = ((folder / name / "bundle.edgeopt").stat().st_size for name in ("edgeopt", "edgeopt-8bit"))
    # Weights and gradients stay; of eight bytes of moments two are left.
    assert small < 0.66 * full
