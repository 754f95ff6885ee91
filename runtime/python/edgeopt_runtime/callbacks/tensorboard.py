"""Curves for TensorBoard, where a package that writes them is installed."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from edgeopt_runtime.callbacks.numbers import numbers_of
from edgeopt_runtime.errors import CallbackError
from edgeopt_runtime.fit import FitInfo

if TYPE_CHECKING:
    from edgeopt_runtime.session import TrainingSession

__all__ = ["TensorBoard"]

# Modules with a `SummaryWriter` of one interface, the lighter one first.
WRITERS = ("tensorboardX", "torch.utils.tensorboard")


class TensorBoard:
    """Writes every number of steps and epochs as a scalar: ``step/loss`` over steps, ``epoch/evaluate.accuracy``.

    Args:
        folder: Where TensorBoard looks, ``tensorboard --logdir FOLDER``.
        steps: Whether to write the numbers of steps, too.

    Raises:
        CallbackError: Neither tensorboardX nor PyTorch with the package tensorboard is installed.
    """

    def __init__(self, folder: str | os.PathLike[str], *, steps: bool = True) -> None:
        self._steps = steps
        self._writer: Any = _writer_class()(os.fspath(folder))

    def __call__(self, session: TrainingSession, info: FitInfo) -> None:
        """Write the numbers."""
        if info.event == "step" and not self._steps:
            return
        place = info.step if info.event == "step" else info.epoch
        for name, value in numbers_of(info.metrics).items():
            self._writer.add_scalar(f"{info.event}/{name}", value, place)
        if info.event == "epoch":
            self._writer.flush()


def _writer_class() -> Any:
    for name in WRITERS:
        try:
            return import_module(name).SummaryWriter
        except ImportError:
            continue
    raise CallbackError(
        "TensorBoard's files need a package that writes them: pip install tensorboardX; or tensorboard, beside PyTorch."
    )
