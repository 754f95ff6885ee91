"""What happens to the gradients before the update."""

from __future__ import annotations

from edgeopt.transforms.base import Transform
from edgeopt.transforms.clip import ClipByGlobalNorm, ClipByValue
from edgeopt.transforms.registry import TRANSFORM, TRANSFORMS

__all__ = ["TRANSFORM", "TRANSFORMS", "ClipByGlobalNorm", "ClipByValue", "Transform"]
