from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgeopt.bundle import Bundle


def test_tables_show_every_tensor_input_number_and_graph(run: Any, bundle: Path) -> None:
    result = run("inspect", bundle)
    assert result.code == 0
    assert "0.weight parameter float32 16 x 4 256" in result
    assert "input model input float32 batch x 4" in result
    assert "target loss input int64 batch" in result
    assert "schedule.lr 0.1" in result
    for graph in ("accumulate", "apply", "evaluate", "predict", "step"):
        assert f"\n {graph} " in result.out
    assert "ONNX Runtime 1.17.0 or newer" in result


def test_json_is_the_report(run: Any, bundle: Path) -> None:
    report = json.loads(run("inspect", bundle, "--json").out)
    assert report == Bundle.load(bundle).inspect().to_dict()


def test_a_folder_is_a_bundle_too(run: Any, bundle: Path, tmp_path: Path) -> None:
    Bundle.load(bundle).save(tmp_path / "unpacked")
    assert "0.weight" in run("inspect", tmp_path / "unpacked")
