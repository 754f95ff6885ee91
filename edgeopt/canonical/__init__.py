"""A model in the one form that everything behind it understands.

Functions are inlined, operators are those of the target opset's standard domain, and shape arithmetic is folded.
"""

from edgeopt.canonical.canonicalize import canonicalize, convert
from edgeopt.canonical.registry import DECOMPOSITIONS, decomposition
from edgeopt.canonical.simplify import simplify

__all__ = ["DECOMPOSITIONS", "canonicalize", "convert", "decomposition", "simplify"]
