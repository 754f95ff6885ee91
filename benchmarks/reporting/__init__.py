"""Records as JSON, as Markdown tables and as a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from measuring.records import Record
from reporting.markdown import markdown
from reporting.picture import draw
from reporting.results import Results

__all__ = ["write"]


def write(records: Sequence[Record], work: Path, folder: Path) -> None:
    """Write results.json, results.md and results.png; the facts about workloads are in their folders below `work`."""
    folder.mkdir(parents=True, exist_ok=True)
    results = Results.of(records, work)
    content = {"machine": results.machine, "facts": results.facts, "records": [asdict(record) for record in records]}
    (folder / "results.json").write_text(json.dumps(content, indent=1) + "\n")
    if results.rows:
        (folder / "results.md").write_text(markdown(results))
        draw(results, folder / "results.png")
