"""torch's exporter without its reports."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator

__all__ = ["quiet"]


# They report in many lines what the exception says too.
_LOGGERS = ("torch.onnx", "torch.export", "torch.fx.experimental.symbolic_shapes", "torch._subclasses.fake_tensor")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """torch reports its progress and unrelated deprecations; what matters arrives as an exception."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
