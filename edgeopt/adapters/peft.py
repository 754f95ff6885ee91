"""Adapters with the settings of a PEFT checkpoint, so that it trains on here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgeopt.adapters.base import LayerAdapter
from edgeopt.adapters.dora import DoRA
from edgeopt.adapters.ia3 import IA3
from edgeopt.adapters.lora import LoRA
from edgeopt.errors import ConfigurationError
from edgeopt_runtime.adapters import read_config

__all__ = ["from_peft"]

# Settings that change what an adapter computes or which layers have one, and the values at which they do not.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "alpha_pattern": (None, {}),
    "arrow_config": (None,),
    "bias": (None, "none"),
    "exclude_modules": (None, []),
    "layer_replication": (None,),
    "layers_pattern": (None, []),
    "layers_to_transform": (None, []),
    "lora_bias": (None, False),
    "megatron_config": (None,),
    "rank_pattern": (None, {}),
    "target_parameters": (None, []),
    "trainable_token_indices": (None,),
    "use_qalora": (None, False),
}


def from_peft(source: Any) -> LayerAdapter:
    """The adapter that a folder or a configuration of PEFT's describes, LoRA, DoRA, rsLoRA or IA3.

    It is for `edgeopt.export`. The weights of a folder come with `session.load_adapters(path)`. What `modules_to_save`
    lists is for `trainable`.

    Args:
        source: The folder, or a `peft.LoraConfig` or `peft.IA3Config`.

    Raises:
        AdapterError: There is no configuration, or it cannot be read.
        ConfigurationError: It is of another kind of adapter, or uses a setting that has no equal here.
    """
    if hasattr(source, "to_dict"):
        config, path = source.to_dict(), "the configuration"
    else:
        config, path = read_config(Path(os.fspath(source))), str(source)
    kind = getattr(config.get("peft_type"), "value", config.get("peft_type"))
    unknown = [key for key, neutral in _NEUTRAL.items() if config.get(key) not in neutral]
    targets = config.get("target_modules")
    if isinstance(targets, (set, frozenset)):
        targets = sorted(targets)
    if unknown or not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
        what = unknown or ["target_modules that is no list of names"]
        raise ConfigurationError(f"The adapter in {path} has {', '.join(what)}, for which there is no equal here.")
    if kind == "IA3":
        return IA3(tuple(sorted(targets)), tuple(config.get("feedforward_modules") or ()))
    if kind != "LORA":
        raise ConfigurationError(f"The adapter in {path} is of the kind {kind!r}; there are LORA and IA3 here.")
    return (DoRA if config.get("use_dora") else LoRA)(
        rank=config.get("r", 8),
        alpha=config.get("lora_alpha", 8),
        targets=tuple(sorted(targets)),
        dropout=config.get("lora_dropout", 0.0),
        rank_stabilized=bool(config.get("use_rslora")),
    )
