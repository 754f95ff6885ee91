from __future__ import annotations

import io
import warnings
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from edgeopt.bundle import Bundle
from edgeopt.cli.console import _console
from edgeopt.cli.inspect import _tensors
from edgeopt_runtime import ForeignBundleError, TrainingSession

COMMANDS = ("quickstart", "export", "train", "evaluate", "predict", "export-inference", "inspect")


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_names_every_command(run: Any, option: str) -> None:
    result = run(option)
    assert result.code == 0
    for command in COMMANDS:
        assert command in result
        assert f"Usage: edgeopt {command}" in run(command, option)


def test_version(run: Any) -> None:
    assert run("--version").out == f"edgeopt {version('edgeopt')}\n"


@pytest.mark.parametrize(
    "arguments", [["juggle"], ["train"], ["inspect", "nowhere.edgeopt"], ["train", "--epochs", "0"]]
)
def test_wrong_usage_exits_with_2(run: Any, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.code == 2
    assert result.out == ""
    assert "Usage" in result.err


def test_an_error_is_a_message_with_its_code(run: Any, folder: Any) -> None:
    result = run("inspect", folder / "model.py")
    assert result.code == 1
    assert result.out == ""
    assert "ForeignBundleError E102" in result
    assert "Traceback" not in result.err


@pytest.mark.parametrize("place", [0, 2])
def test_debug_shows_the_traceback(run: Any, folder: Any, place: int) -> None:
    arguments = ["inspect", folder / "model.py"]
    arguments.insert(place, "--debug")
    with pytest.raises(ForeignBundleError):
        run(*arguments)


def test_what_is_piped_on_is_whole(bundle: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Without a terminal, names longer than one is wide stay in one piece."""
    whole = Bundle.load(bundle)
    name = "a_very_long_name_of_a_layer." * 6 + "weight"
    report = whole.inspect()
    report = replace(report, tensors=(replace(report.tensors[0], name=name), *report.tensors[1:]))
    monkeypatch.delenv("COLUMNS", raising=False)
    _console(io.StringIO(), stderr=False).print(_tensors(report))
    assert any(name in line and "16 x 4" in line for line in capsys.readouterr().out.splitlines())


def test_warnings_are_lines_too(run: Any, monkeypatch: pytest.MonkeyPatch, bundle: Any) -> None:
    def warn(*given: object, **settings: object) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("it draws numbers; check=False", UserWarning, stacklevel=1)

    monkeypatch.setattr(TrainingSession, "export_inference", warn)
    Path("x.onnx").touch()
    result = run("export-inference", bundle, "--out", "x.onnx")
    assert result.err == "warning: it draws numbers; --no-check\n"
