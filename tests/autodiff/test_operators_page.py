"""The page about operators is what its generator writes."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate_operators", DOCS / "generate_operators.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.page() == (DOCS / "operators.md").read_text(encoding="utf-8"), "run docs/generate_operators.py"


def test_the_example_of_a_rule_has_the_row_that_the_page_shows() -> None:
    rows = (Path(__file__).parent / "test_activations.py").read_text(encoding="utf-8")
    how_to = (DOCS / "add-a-gradient-rule.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r'^    \("Softsign".*$', how_to, re.MULTILINE)
    assert shown in rows
