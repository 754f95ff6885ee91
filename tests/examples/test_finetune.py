"""Each example of fine-tuning, in a hurry: it learns, and leaves a picture and a bundle that loads."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgeopt_runtime import TrainingSession

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from finetune import EXAMPLES, run

#: What the last of the numbers must be better by at least, after a few steps on a few samples.
GAINS = {
    "image_classifier": 0.1,
    "keyword": 0.1,
    "ocr": 0.2,
    "text_encoder": 0.0,
    "two_tower": 0.4,
    "uncertainty": 0.1,
    "distillation": 0.3,
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_learns(name: str, tmp_path: Path) -> None:
    result = run(name, tmp_path, quick=True)
    first = result.figures[0]
    gain = first.after - first.before
    assert (gain if result.higher_is_better else -gain) > GAINS[name], result.table()
    assert result.picture.read_bytes().startswith(b"\x89PNG")
    bundles = list(tmp_path.glob("*.edgeopt"))
    assert bundles
    for bundle in bundles:
        TrainingSession.load(bundle)
