"""Trees of arrays: dictionaries, lists, tuples and what JAX has registered, if JAX is there."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["flatten", "unflatten"]


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """The leaves of a tree, in the order of JAX (dictionaries by sorted keys), and its structure."""
    if "jax" in sys.modules:
        leaves, structure = sys.modules["jax"].tree_util.tree_flatten(tree)
        return leaves, structure
    found: list[Any] = []
    return found, _take_apart(tree, found)


def unflatten(structure: Any, leaves: list[Any]) -> Any:
    """A tree of that structure with these leaves."""
    if "jax" in sys.modules:
        return sys.modules["jax"].tree_util.tree_unflatten(structure, leaves)
    return _put_together(structure, leaves)


def _take_apart(tree: Any, leaves: list[Any]) -> Any:
    """The tree with the number of each leaf in its place."""
    if isinstance(tree, dict):
        return {key: _take_apart(tree[key], leaves) for key in sorted(tree)}
    if isinstance(tree, (list, tuple)):
        parts = [_take_apart(part, leaves) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    if tree is None:
        return None
    leaves.append(tree)
    return len(leaves) - 1


def _put_together(structure: Any, leaves: list[Any]) -> Any:
    if isinstance(structure, dict):
        return {key: _put_together(part, leaves) for key, part in structure.items()}
    if isinstance(structure, (list, tuple)):
        parts = [_put_together(part, leaves) for part in structure]
        return type(structure)(*parts) if hasattr(structure, "_fields") else type(structure)(parts)
    return None if structure is None else leaves[structure]
