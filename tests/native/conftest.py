"""The native kernels, from the folder into which `make` installs their wheel; without it, these tests are left out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "build" / "native" / "site"


@pytest.fixture(scope="module")
def package() -> Iterator[Path]:
    """The folder of the package edgeopt_native, which can be imported meanwhile."""
    if not (SITE / "edgeopt_native").is_dir():
        pytest.skip("there are no native kernels: `make build/native/stamp` builds them where there is a C++ compiler")
    sys.path.insert(0, str(SITE))
    yield SITE / "edgeopt_native"
    sys.path.remove(str(SITE))
    sys.modules.pop("edgeopt_native", None)


@pytest.fixture(scope="module")
def library(package: Path) -> str:
    import edgeopt_native  # type: ignore[import-not-found]  # it is installed beside the environment

    path: str = edgeopt_native.library_path()
    return path
