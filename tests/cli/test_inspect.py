from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import onnx.parser

from edgeopt.bundle import Bundle

FILE = """
<ir_version: 8, opset_import: ["" : 17]> m (float[n, 3] x) => (float[n, 2] y)
<float[3, 2] w = {1, 2, 3, 4, 5, 7}, float[2] unknown = {1, 3}, float low = {0}> {
    h = MatMul(x, w) c = Clip(h, low) y = Mul(c, unknown)
}
"""


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


def test_an_onnx_file_shows_what_its_constants_are_taken_for(run: Any, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(FILE), tmp_path / "model.onnx")
    result = run("inspect", tmp_path / "model.onnx")
    assert result.code == 0
    assert "w 3 x 2 parameter weight of a MatMul" in result
    assert "unknown 2 parameter? operand of a Mul" in result
    assert "and 1 single numbers or empty tensors" in result
    assert "1 of these roles are guesses" in result
    assert "What could train" in result
    assert "backward through" in result


def test_the_constants_of_a_file_as_json(run: Any, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(FILE), tmp_path / "model.onnx")
    report = json.loads(run("inspect", tmp_path / "model.onnx", "--json").out)
    rows = {row["name"]: row for row in report["constants"]}
    assert [row["name"] for row in report["proposals"]][-1] == "everything"
    assert rows["w"] == {
        "name": "w",
        "dtype": "float32",
        "shape": [3, 2],
        "role": "parameter",
        "reason": "weight of a MatMul",
        "certain": True,
    }
    assert rows["low"]["role"] == "setting"


def test_a_file_that_cannot_be_read(run: Any, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_text("nothing", encoding="utf-8")
    assert run("inspect", tmp_path / "model.onnx").code == 1
