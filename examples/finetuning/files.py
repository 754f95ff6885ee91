"""Where the models and data are that packages ship; `make build/examples/stamp` fetches them."""

from __future__ import annotations

from pathlib import Path

__all__ = ["packaged"]

FOLDER = Path(__file__).parents[2] / "build" / "examples"


def packaged(name: str) -> Path:
    """A file that was fetched.

    Raises:
        SystemExit: It was not.
    """
    path = FOLDER / name
    if not path.exists():
        raise SystemExit(f"{path} is missing: `make build/examples/stamp` fetches it.")
    return path
