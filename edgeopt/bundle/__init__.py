"""The bundle: graphs, state and manifest of one exported training step.

The file format itself is defined once, in `edgeopt_runtime`, which devices use too; this package adds what a
workstation needs.
"""

from __future__ import annotations

from edgeopt.bundle.bundle import Bundle, Replacement
from edgeopt.bundle.inspection import GraphRow, Report, TensorRow, inspect

__all__ = ["Bundle", "GraphRow", "Replacement", "Report", "TensorRow", "inspect"]
