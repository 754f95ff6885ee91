"""Marked stretches of a finished graph become calls of functions, which native kernels may stand in for."""

from edgeopt.outlining.outline import outline

__all__ = ["outline"]
