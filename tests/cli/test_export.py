from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from edgeopt.bundle import Bundle
from edgeopt.cli.components import build_optimizer
from edgeopt.optimizers import AdamW


@pytest.fixture
def here(run: Any, folder: Path, tmp_path: Path) -> Path:
    (tmp_path / "a_model.py").write_bytes((folder / "model.py").read_bytes())
    (tmp_path / "broken.py").write_text("import not_installed_anywhere\n", encoding="utf-8")
    return tmp_path


def test_options_reach_the_bundle(run: Any, here: Path) -> None:
    result = run(
        *("export", "a_model:build", "--out", "made.edgeopt", "--loss", "cross_entropy:label_smoothing=0.1"),
        *("--optimizer", "sgd:momentum=0.9", "--lr", 0.5, "--schedule", "warmup_linear:warmup_steps=3,total_steps=30"),
        *("--transform", "clip_by_value:clip_value=2", "--transform", "clip_by_global_norm:max_norm=1"),
        *("--metric", "accuracy", "--trainable", "2.*", "--seed", 7),
    )
    assert result.code == 0
    assert "wrote made.edgeopt" in result
    assert "2 of 4 parameters train" in result
    bundle = Bundle.load(here / "made.edgeopt")
    assert {spec.name: spec.default for spec in bundle.manifest.hyperparameters} == {
        "schedule.lr": 0.5,
        "schedule.warmup_steps": 3.0,
        "schedule.total_steps": 30.0,
        "optimizer.momentum": 0.9,
        "clip_by_value.clip_value": 2.0,
        "clip_by_global_norm.max_norm": 1.0,
    }
    trainable = [spec.name for spec in bundle.manifest.tensors if spec.trainable]
    assert trainable == ["2.weight", "2.bias"]
    assert "accuracy" in [port.name for port in bundle.manifest.signatures["step"].outputs]


def test_the_batch_size_can_be_fixed(run: Any, here: Path) -> None:
    assert run("export", "a_model:build", "--out", "made", "--loss", "cross_entropy", "--fixed-batch").code == 0
    assert [spec.shape for spec in Bundle.load(here / "made").manifest.inputs] == [(2, 4), (2,)]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("no_such_module:build", "There is no module 'no_such_module'"),
        ("a_model:nothing", "The module 'a_model' has no function 'nothing'"),
        ("a_model:only_the_model", "must return the model and its example inputs, not a Sequential"),
    ],
)
def test_a_model_that_cannot_be_had_is_an_error_of_ours(run: Any, here: Path, model: str, message: str) -> None:
    result = run("export", model, "--out", "made.edgeopt", "--loss", "mse")
    assert result.code == 1
    assert message in result
    assert not (here / "made.edgeopt").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a_model", "--loss", "mse"], "does not look like module:function or file.onnx"),
        (["a_model:build", "--loss", "mse", "--optimizer", "adamx"], "There is no optimizer 'adamx'"),
        (["a_model:build", "--loss", "mean"], "There is no loss 'mean'"),
    ],
)
def test_wrong_words_are_wrong_usage(run: Any, here: Path, arguments: list[str], message: str) -> None:
    result = run("export", *arguments, "--out", "made.edgeopt")
    assert result.code == 2
    assert message in result


def test_an_error_inside_the_users_module_keeps_its_traceback(run: Any, here: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        run("export", "broken:build", "--out", "made.edgeopt", "--loss", "mse")


def test_a_pattern_that_matches_nothing_names_the_parameters(run: Any, here: Path) -> None:
    result = run("export", "a_model:build", "--out", "x.edgeopt", "--loss", "cross_entropy", "--trainable", "head.*")
    assert result.code == 1
    assert "ParameterPatternError E204" in result
    assert "0.weight" in result


FILE = """
<ir_version: 8, opset_import: ["" : 17]>
model (float[1, 2] x, float scale) => (float[1, 2] p) <float[2, 2] w = {0.5, -0.5, 1, 2}, float[2] b = {0, 1}> {
    h = Gemm(x, w, b)
    y = Mul(h, scale)
    p = Sigmoid(y)
}
"""


def test_a_file_is_exported_as_it_is(run: Any, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(FILE), tmp_path / "model.onnx")
    result = run(
        *("export", "model.onnx", "--out", "made", "--loss", "bce_with_logits", "--trainable", "w"),
        *("--loss-input", "y", "--fixed-input", "scale=2.5"),
    )
    assert result.code == 0
    assert "1 of 2 parameters train" in result
    manifest = Bundle.load(tmp_path / "made").manifest
    assert [(spec.name, spec.shape) for spec in manifest.inputs] == [("x", ("batch", 2)), ("target", ("batch", 2))]
    assert [spec.name for spec in manifest.outputs] == ["p", "y"]


def test_adapters_in_words(run: Any, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(FILE), tmp_path / "model.onnx")
    common = ("export", "model.onnx", "--out", "made", "--loss", "bce_with_logits", "--fixed-input", "scale=2.5")
    result = run(*common, "--adapters", "lora:rank=1,alpha=2,targets=w")
    assert result.code == 0
    assert "2 of 4 parameters train" in result
    (adapter,) = Bundle.load(tmp_path / "made").manifest.adapters
    assert (adapter.kind, adapter.config["r"], adapter.config["lora_alpha"]) == ("lora", 1, 2)
    for merge in ("--merge", "--no-merge"):
        assert run("export-inference", "made", "--out", "model.onnx", merge).code == 0
    assert "--adapter" in run(*common, "--adapter", "lora:rank=0")


def test_a_file_that_is_not_there(run: Any) -> None:
    result = run("export", "nowhere.onnx", "--out", "made", "--loss", "mse")
    assert result.code == 1
    assert "nowhere.onnx" in result


def test_a_fixed_input_without_a_value(run: Any, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(FILE), tmp_path / "model.onnx")
    result = run("export", "model.onnx", "--out", "made", "--loss", "mse", "--fixed-input", "scale")
    assert result.code == 2
    assert "does not look like NAME=VALUE" in result


RATES = {
    "adamw:lr=0.1": ((), 0.1),
    "adamw": ((), 1e-3),
    "adamw8bit": (("--lr", 0.5), 0.5),
    "adamw:state=int4": (("--schedule", "step:step_size=3", "--lr", 0.4), 0.4),
    "prodigy": ((), 1.0),
    "sgd:momentum=0.9": (("--lr", 0.5), 0.5),
    "lion:lr=0.2": (("--schedule", "warmup_linear:warmup_steps=3,total_steps=30"), 0.2),
    "lion": (("--schedule", "warmup_linear:lr=0.3,warmup_steps=3,total_steps=30"), 0.3),
    "nadam": (("--schedule", "step:step_size=3", "--lr", 0.4), 0.4),
    "radam": (("--schedule", "step:step_size=3"), 1e-3),
    "muon": (("--schedule", "noam"), 1.0),
}


@pytest.mark.parametrize("optimizer", RATES)
def test_the_rate_is_what_was_said(optimizer: str) -> None:
    options, rate = RATES[optimizer]
    given = dict(zip(options[::2], options[1::2], strict=True))
    rule = build_optimizer(optimizer, given.get("--lr"), given.get("--schedule"))  # type: ignore[arg-type]
    assert rule.schedule.hyperparameters()["lr"] == rate


@pytest.mark.parametrize(
    "options",
    [
        ("--optimizer", "adamw:lr=0.1", "--lr", 0.2),
        ("--optimizer", "adamw:lr=0.1", "--schedule", "step:step_size=3,lr=0.1"),
        ("--schedule", "step:step_size=3,lr=0.1", "--lr", 0.1),
        ("--optimizer", "adamw:state=int4", "--optimizer-state", "int8"),
    ],
)
def test_a_setting_that_is_said_twice_is_wrong_usage(run: Any, here: Path, options: tuple[object, ...]) -> None:
    result = run("export", "a_model:build", "--loss", "mse", "--out", "made.edgeopt", *options)
    assert result.code == 2
    assert "give it once" in result


def test_a_format_is_said_with_the_rule_or_apart() -> None:
    said: object = AdamW(state="int4")
    assert build_optimizer("adamw", None, None, "int4") == said == build_optimizer("adamw:state=int4", None, None)


def test_where_a_bundle_goes_is_looked_at_before_the_model(run: Any, here: Path) -> None:
    result = run("export", "no_such_module:build", "--loss", "mse", "--out", "nowhere/made.edgeopt")
    assert result.code == 1
    assert "there is no folder nowhere" in result


def test_a_budget_of_memory_is_met_or_refused_in_numbers(run: Any, here: Path) -> None:
    command = ("export", "a_model:build", "--out", "made.edgeopt", "--loss", "cross_entropy", "--memory-budget-mb")
    assert "of 64 MiB: as it is" in run(*command, 64, "--memory-size", "batch=8").err
    refused = run(*command, 1)
    assert refused.code != 0
    assert "MemoryBudgetError" in refused.err
