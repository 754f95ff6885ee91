"""Adapters: which of a model's numbers move when it is fine-tuned, where the model itself stays as it is."""

from edgeopt.adapters.base import Adapter, LayerAdapter, Selection
from edgeopt.adapters.dora import DoRA
from edgeopt.adapters.ia3 import IA3
from edgeopt.adapters.layers import Layer
from edgeopt.adapters.lora import LoRA
from edgeopt.adapters.peft import from_peft
from edgeopt.adapters.place import Place
from edgeopt.adapters.registry import ADAPTER, ADAPTERS
from edgeopt.adapters.rewriting import Adapted, adapt
from edgeopt.adapters.selections import BitFit, LastLayers
from edgeopt.adapters.sparse import SparseUpdate

__all__ = [
    "ADAPTER",
    "ADAPTERS",
    "IA3",
    "Adapted",
    "Adapter",
    "BitFit",
    "DoRA",
    "LastLayers",
    "Layer",
    "LayerAdapter",
    "LoRA",
    "Place",
    "Selection",
    "SparseUpdate",
    "adapt",
    "from_peft",
]
