"""Bundles to train, made elsewhere or, where exporting is possible, here."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeopt_runtime import TrainingSession


@dataclass(frozen=True)
class Case:
    """A bundle, the batches to train it on, and what the newest releases made of them."""

    path: Path
    expected: Mapping[str, NDArray[Any]]

    @property
    def batches(self) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        count = len({name.split(".")[1] for name in self.expected if name.startswith("batch.")})
        return [(self.expected[f"batch.{index}.0"], self.expected[f"batch.{index}.1"]) for index in range(count)]

    def group(self, prefix: str) -> dict[str, NDArray[Any]]:
        return {name.removeprefix(prefix): array for name, array in self.expected.items() if name.startswith(prefix)}

    def session(self) -> TrainingSession:
        return TrainingSession.load(self.path, threads=1)


@pytest.fixture(scope="session")
def bundles(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = request.config.getoption("--bundles")
    if given:
        return Path(given).resolve()
    folder = tmp_path_factory.mktemp("bundles")
    make: Callable[[Path], None] = runpy.run_path(str(Path(__file__).parent / "make_bundles.py"))["main"]
    make(folder)
    return folder


def read_case(bundles: Path, name: str) -> Case:
    with np.load(bundles / f"{name}.npz") as file:
        return Case(bundles / f"{name}.edgeopt", dict(file))


@pytest.fixture(scope="session", params=["mlp", "cnn", "transformer"])
def case(request: pytest.FixtureRequest, bundles: Path) -> Case:
    return read_case(bundles, request.param)


@pytest.fixture(scope="session")
def mlp_case(bundles: Path) -> Case:
    return read_case(bundles, "mlp")
