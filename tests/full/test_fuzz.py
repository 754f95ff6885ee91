"""100,000 mutants of bundles: manifests, graphs, states and archives, by format or blindly."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeopt_runtime import write_bundle

CAMPAIGN = Path(__file__).parents[1] / "fuzzing" / "campaign.py"
BY_HAND = Path(__file__).parents[1] / "runtime" / "conftest.py"
EXPORTED = Path(__file__).parents[1] / "device" / "make_bundles.py"
MUTANTS = 100_000


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two bundles: one made by hand that has one of everything, one that was exported."""
    folder = tmp_path_factory.mktemp("seeds")
    made = runpy.run_path(str(BY_HAND))
    manifest = made["make_manifest"]()
    write_bundle(folder / "linear.edgeopt", manifest, made["make_graphs"](manifest), made["make_state"](manifest))
    export: Callable[[Path], None] = runpy.run_path(str(EXPORTED))["main"]
    export(folder)
    return [folder / "linear.edgeopt", folder / "mlp.edgeopt"]


@pytest.mark.timeout(7200)
@pytest.mark.skipif(sys.platform != "linux", reason="the bounds on memory are Linux's")
def test_each_mutant_is_refused_in_words_or_trains(seeds: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    workers = os.cpu_count() or 1
    share = MUTANTS // workers
    processes = [
        subprocess.Popen(
            [sys.executable, CAMPAIGN, "10", str(index * share), str(share), *seeds], stdout=subprocess.PIPE, text=True
        )
        for index in range(workers)
    ]
    reports: list[dict[str, Any]] = [json.loads(process.communicate()[0]) for process in processes]
    outcomes: Counter[str] = sum((Counter(report["outcomes"]) for report in reports), Counter())
    with capsys.disabled():
        print(*(f"{count:7d} {outcome}" for outcome, count in sorted(outcomes.items())), sep="\n")  # noqa: T201 # a table
    assert [entry for report in reports for entry in report["wrong"]] == []
    assert [entry for report in reports for entry in report["died"]] == []
    assert sum(outcomes.values()) == share * workers
