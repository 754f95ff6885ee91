"""Operators said with others, one module a kind; importing this package fills the table."""

from edgeopt.canonical.decompositions import normalisation

__all__ = ["normalisation"]
