"""What is said of single nodes in their metadata, which every pass that replaces nodes has to respect."""

from __future__ import annotations

__all__ = ["REGION", "WRITTEN"]

#: The node has the value of one operand and the gradient of another; see `Tracer.written`.
WRITTEN = "edgeopt.written"
#: The model itself wants the node computed again in the backward pass; the value names the region it belongs to.
REGION = "edgeopt.region"
