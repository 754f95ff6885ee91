"""What is said of single nodes in their metadata, which every pass that replaces nodes has to respect."""

from __future__ import annotations

__all__ = ["REGION", "WEIGHTS", "WRITTEN"]

#: The node has the value of one operand and the gradient of another; see `Tracer.written`.
WRITTEN = "edgeopt.written"
#: The model itself wants the node computed again in the backward pass; the value names the region it belongs to.
REGION = "edgeopt.region"
#: How the names of regions begin that make weights of what is stored: the forward pass reads what they give right
#: away, and the backward pass another copy.
WEIGHTS = "weights/"
