"""What an export settled by itself, said to the person who called it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable

from edgeopt.errors import ExportWarning
from edgeopt_runtime.manifest import Decision

__all__ = ["say"]

# From `warnings.warn` in `say`, over `export` and what checks its arguments, up to whoever called `edgeopt.export`.
_CALLER = 4


def say(decisions: Iterable[Decision], *, verbose: bool) -> None:
    """One line each on stderr; what may be other than what was meant is a warning, whatever `verbose` says."""
    for decision in decisions:
        if decision.warning:
            warnings.warn(decision.text, ExportWarning, stacklevel=_CALLER)
        elif verbose:
            print(f"edgeopt: {decision.text}", file=sys.stderr)  # noqa: T201  # this is what it is for
