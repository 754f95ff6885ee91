"""Scan as it was before opset 9."""

from __future__ import annotations

from typing import NoReturn

from edgeopt.canonical.registry import adapter
from edgeopt.errors import UnsupportedModelError
from edgeopt.tracing.site import Site


@adapter("Scan", before=9)
def scan(n: Site) -> NoReturn:
    """Not converted: it ran its body for each entry of a batch, which no later form does."""
    raise UnsupportedModelError(
        f"Scan {n.node.name!r} has the form of opset 8, with a batch of sequences, which no later opset can say; "
        "export the model at opset 9 or later."
    )
