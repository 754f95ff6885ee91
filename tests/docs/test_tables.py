"""Tables in the documentation that repeat what the code says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

import edgeopt_runtime.errors
from edgeopt.adapters import ADAPTERS
from edgeopt.cli import errors as command_errors
from edgeopt.errors import EdgeoptError
from edgeopt.losses import LOSSES
from edgeopt.metrics import METRICS
from edgeopt.schedules import SCHEDULES
from edgeopt.transforms import TRANSFORMS

DOCS = Path(__file__).parents[2] / "docs"
REGISTRIES: dict[str, Mapping[str, type[object]]] = {
    "Adapters": ADAPTERS,
    "Losses": LOSSES,
    "Metrics": METRICS,
    "Schedules": SCHEDULES,
    "Transforms": TRANSFORMS,
}


def subclasses(cls: type[EdgeoptError]) -> set[type[EdgeoptError]]:
    return {cls}.union(*(subclasses(child) for child in cls.__subclasses__()))


def test_every_error_has_a_code_of_its_own_and_a_row() -> None:
    assert issubclass(command_errors.CommandError, edgeopt_runtime.errors.EdgeoptError)
    errors = {(cls.code, cls.__name__) for cls in subclasses(EdgeoptError) if cls.__module__.startswith("edgeopt")}
    assert len({code for code, _ in errors}) == len(errors)
    text = (DOCS / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(E\d{3})` \| `(\w+)` \|", text, re.MULTILINE)
    assert rows == sorted(errors)


@pytest.mark.parametrize("title", REGISTRIES)
def test_every_registered_name_has_a_row(title: str) -> None:
    text = (DOCS / "components.md").read_text(encoding="utf-8")
    section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)", section, re.MULTILINE)
    assert rows == sorted((name, cls.__name__) for name, cls in REGISTRIES[title].items())
