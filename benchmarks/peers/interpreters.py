"""Where the interpreters of the peers are."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from measuring.process import Failed
from peers.base import implementation

__all__ = ["ENVIRONMENTS", "find_interpreter"]

ENVIRONMENTS = Path(__file__).parents[2] / "build" / "peers"


def find_interpreter(environment: str, module: str) -> Path:
    """The interpreter of a peer's environment; this one, if there is none but what the peer needs is here too.

    Raises:
        Failed: The environment has not been made.
    """
    own = ENVIRONMENTS / environment / "bin" / "python"
    if environment and own.exists():
        return own
    package = implementation(import_module(f"peers.{module}")).PACKAGES[0]
    if environment and find_spec(package.replace("-", "_")) is None:
        raise Failed(f"not installed: `make build/peers/{environment}/stamp`")
    return Path(sys.executable)
