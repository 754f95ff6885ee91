"""Every adapter by name. The contract tests run over this table."""

from __future__ import annotations

from functools import partial

from edgeopt.adapters.base import Adapter
from edgeopt.adapters.dora import DoRA
from edgeopt.adapters.ia3 import IA3
from edgeopt.adapters.lora import LoRA
from edgeopt.adapters.selections import BitFit, LastLayers
from edgeopt.adapters.sparse import SparseUpdate
from edgeopt.components import Kind

__all__ = ["ADAPTER", "ADAPTERS"]

ADAPTERS: dict[str, type[Adapter]] = {
    "bitfit": BitFit,
    "dora": DoRA,
    "ia3": IA3,
    "last_layers": LastLayers,
    "lora": LoRA,
    "sparse_update": SparseUpdate,
}

ADAPTER = Kind(
    name="adapter",
    base=Adapter,  # type: ignore[type-abstract]  # only instances of it are made
    registry=ADAPTERS,
    example="edgeopt.adapters.LoRA(rank=8)",
    pairs={
        "rslora": partial(LoRA, rank_stabilized=True),
        "lora_plus": partial(LoRA, learning_rate_ratio=16.0),
    },
)
