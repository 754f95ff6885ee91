"""A workload, and how words choose among several."""

from __future__ import annotations

import fnmatch
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ADAMW", "Batch", "Workload", "generator", "select"]

# One input (float32 or int64) and the labels (int64).
Batch = tuple[NDArray[np.generic], NDArray[np.int64]]

# AdamW everywhere, with the settings of PyTorch's class; the learning rate is the workload's.
ADAMW = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01}

T = TypeVar("T")


@dataclass(frozen=True)
class Workload:
    """One model with its data.

    Attributes:
        name: What it is called on the command line.
        title: What it is called in the report.
        build: Makes the module with random weights, all of it trainable.
        batch: The batch of a step. Ever new noise keeps the loss away from zero, where a comparison of losses would
            say nothing and moments of gradients become denormal numbers.
        lr: Learning rate of AdamW.
        trainable: Patterns of the parameters that train; None means all.
        update: Whether only the update is measured, with gradients that stay the same; the batch is empty then.
        uncounted_flops: Operations of a step that torch's counter does not see.
    """

    name: str
    title: str
    build: Callable[[], nn.Module]
    batch: Callable[[int], Batch]
    lr: float = 1e-3
    trainable: tuple[str, ...] | None = None
    update: bool = False
    uncounted_flops: int = 0

    def trains(self, parameter: str) -> bool:
        """Whether a parameter of this name trains."""
        return self.trainable is None or any(fnmatch.fnmatch(parameter, pattern) for pattern in self.trainable)

    def module(self) -> nn.Module:
        """The module in training mode with random weights, always the same; what does not train needs no gradient.

        A BatchNorm that does not train normalises by its running statistics.
        """
        import torch

        torch.manual_seed(zlib.crc32(self.name.encode()))
        module = self.build().train()
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(self.trains(name))
        for part in module.modules():
            own = list(part.parameters(recurse=False))
            if isinstance(part, torch.nn.BatchNorm2d) and not any(parameter.requires_grad for parameter in own):
                part.eval()
        return module


def generator(*seed: int) -> np.random.Generator:
    """Random numbers of a seed."""
    return np.random.default_rng(seed)


def select(words: Iterable[str], known: Mapping[str, T]) -> dict[str, T]:
    """The entries that any of the words names, each by its name, the beginning of it, or a pattern; all, for no words.

    Raises:
        SystemExit: A word names nothing.
    """
    words = list(words)
    chosen: set[str] = set()
    for word in words:
        found = {word} & set(known) or {name for name in known if name.startswith(word) or fnmatch.fnmatch(name, word)}
        if not found:
            raise SystemExit(f"Nothing is called {word!r}; there are {', '.join(known)}.")
        chosen |= found
    return {name: entry for name, entry in known.items() if name in chosen or not words}
