"""The scripts of examples/ do what they say."""

from __future__ import annotations

import runpy
from pathlib import Path

from edgeopt_runtime import read_bundle

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_personalize_learns_one_users_gestures(tmp_path: Path) -> None:
    before, after = runpy.run_path(str(EXAMPLES / "personalize.py"))["main"](tmp_path)
    assert before < 0.5
    assert after > 0.9
    assert (tmp_path / "mine.onnx").exists()
    first, mine = read_bundle(tmp_path / "gestures.edgeopt").state, read_bundle(tmp_path / "mine.edgeopt").state
    changed = {name for name in first if first[name].tobytes() != mine[name].tobytes()}
    assert {name for name in changed if not name.startswith("optimizer.")} == {"head.weight", "head.bias"}
