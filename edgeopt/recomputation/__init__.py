"""Activations that are dropped after the forward pass and computed again in the backward pass."""

from edgeopt.recomputation.rewrite import recompute

__all__ = ["recompute"]
