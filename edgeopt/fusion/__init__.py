"""Elementwise nodes as chains, which a native kernel runs in one pass over memory and any runtime as what they were."""

from edgeopt.fusion.fuse import fuse, is_chain, unfuse

__all__ = ["fuse", "is_chain", "unfuse"]
