"""Activations that are dropped after the forward pass and computed again in the backward pass."""

from edgeopt.recomputation.groups import has_regions
from edgeopt.recomputation.rewrite import recompute

__all__ = ["has_regions", "recompute"]
