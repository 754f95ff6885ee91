"""Optimizers of other packages with their state in fewer bits, and the pair that stands for each here."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["CASES", "Case"]


class Case(NamedTuple):
    """An optimizer and its equal.

    Attributes:
        reference: Where it is, `package.optim.Class`.
        ours: The name of the pair.
        theirs: Its settings.
        settings: Those of the pair.
    """

    reference: str
    ours: str
    theirs: dict[str, Any]
    settings: dict[str, Any]


CASES = (
    # Its Adam decays apart from the gradient.
    Case(
        "bitsandbytes.optim.Adam8bit", "adamw8bit", {"lr": 1e-2, "weight_decay": 0.1}, {"lr": 1e-2, "weight_decay": 0.1}
    ),
    Case("bitsandbytes.optim.AdamW8bit", "adamw8bit", {"lr": 1e-2}, {"lr": 1e-2}),
    Case("bitsandbytes.optim.AdEMAMix8bit", "ademamix8bit", {"lr": 1e-3}, {"lr": 1e-3, "weight_decay": 0.01}),
    Case("bitsandbytes.optim.Lion8bit", "lion8bit", {"lr": 1e-3}, {"lr": 1e-3}),
    Case(
        "bitsandbytes.optim.SGD8bit",
        "sgd8bit",
        {"lr": 1e-2, "momentum": 0.9},
        {"lr": 1e-2, "momentum": 0.9},
    ),
    Case("torchao.optim.Adam8bit", "adam8bit", {"lr": 1e-2}, {"lr": 1e-2}),
    Case("torchao.optim.AdamW8bit", "adamw8bit", {"lr": 1e-2}, {"lr": 1e-2}),
    Case("torchao.optim.AdamW4bit", "adamw4bit", {"lr": 1e-2}, {"lr": 1e-2}),
    Case("torchao.optim.AdamWFp8", "adamw_fp8", {"lr": 1e-2}, {"lr": 1e-2}),
)
