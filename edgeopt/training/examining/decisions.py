"""What an export says about itself, in lines that stay short."""

from __future__ import annotations

from collections.abc import Iterable

from edgeopt_runtime.manifest import Decision

__all__ = ["decided", "listed"]

_SHOWN = 8
# Of what a manifest takes for a name, some is left.
_LONGEST = 1000


def listed(names: Iterable[str]) -> str:
    """The names in a row; of very many the first, and how many more there are."""
    every = list(names)
    shown = every if len(every) <= _SHOWN + 1 else [*every[:_SHOWN], f"{len(every) - _SHOWN} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def decided(kind: str, names: Iterable[str], text: str, *, warning: bool = False) -> Decision:
    """What was settled about some tensors or nodes."""
    return Decision(kind, listed(names)[:_LONGEST], text, warning)
