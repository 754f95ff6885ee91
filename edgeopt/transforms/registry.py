"""Every gradient transform by name. The contract tests run over this table."""

from __future__ import annotations

from edgeopt.transforms.base import Transform
from edgeopt.transforms.clip import ClipByGlobalNorm, ClipByValue

__all__ = ["TRANSFORMS"]

TRANSFORMS: dict[str, type[Transform]] = {
    "clip_by_global_norm": ClipByGlobalNorm,
    "clip_by_value": ClipByValue,
}
