"""What an export settled by itself, as lines."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from edgeopt_runtime.manifest import Decision

__all__ = ["print_decisions"]


def print_decisions(decisions: Iterable[Decision], console: Console) -> None:
    """One line each; what may be other than what was meant stands out."""
    for decision in decisions:
        style = "yellow" if decision.warning else "dim"
        label = f"{'warning' if decision.warning else decision.kind}: "
        console.print(Text.assemble((label, style), decision.text), soft_wrap=True)
