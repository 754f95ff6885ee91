from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest

from edgeopt_runtime import ForeignBundleError


def test_help_names_every_command(run: Any) -> None:
    result = run("--help")
    assert result.code == 0
    for command in ("quickstart", "export", "train", "evaluate", "predict", "inspect"):
        assert command in result


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
