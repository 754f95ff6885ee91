"""A sample of the mutants that `make test-full` tries: whatever became of a bundle, the runtime says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CAMPAIGN = Path(__file__).parents[1] / "fuzzing" / "campaign.py"


@pytest.mark.skipif(sys.platform != "linux", reason="the bounds on memory are Linux's")
def test_mutants_are_refused_in_words_or_train(mlp_case: Any) -> None:
    done = subprocess.run(
        [sys.executable, CAMPAIGN, "0", "0", "500", mlp_case.path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["wrong"] == []
    assert report["died"] == []
    assert sum(report["outcomes"].values()) == 500
    reached = {outcome.partition(": ")[2] for outcome in report["outcomes"]}
    assert {
        "loaded",
        "trained",
        "ForeignBundleError",
        "ManifestError",
        "TamperedBundleError",
        "TruncatedBundleError",
    } <= reached
