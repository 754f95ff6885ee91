"""What a peer is to the program that measures it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

from workloads import Batch, Workload

__all__ = ["Cannot", "Checked", "Implementation", "Peer", "Step", "implementation"]

# Trains on a batch and returns the loss before the update.
Step = Callable[[Batch], float]


@dataclass(frozen=True)
class Checked:
    """A step without a loss, and a number that says what the parameters have become; asked for outside of any time."""

    step: Callable[[Batch], object]
    check: Callable[[], float]

    def __call__(self, batch: Batch) -> float:
        """Take a step."""
        self.step(batch)
        return 0.0


class Cannot(Exception):  # noqa: N818 # not an error: an answer that the report prints
    """The peer cannot train the workload; says why, in one sentence for the report's footnotes."""


class Implementation(Protocol):
    """What a module of this package has.

    Attributes:
        PACKAGES: Packages whose versions the report states, the peer's own first.
    """

    PACKAGES: tuple[str, ...]

    def imports(self, workload: Workload, variant: str) -> None:
        """Import all that a step of the workload needs, so that memory and time are measured without it."""

    def prepare(self, workload: Workload, variant: str, folder: Path) -> int | None:
        """Make what a device would get, in the folder; its bytes, or None for a peer that ships no artifact.

        The folder's parent holds `weights.npz`, the first weights by the names of the module's state.

        Raises:
            Cannot: The peer cannot train this.
        """

    def load(self, workload: Workload, variant: str, folder: Path, threads: int) -> Step | Checked:
        """Load what `prepare` made, or build the model.

        Raises:
            Cannot: The peer cannot train this.
        """


@dataclass(frozen=True)
class Peer:
    """A column of the report.

    Attributes:
        name: What it is called, there and on the command line.
        module: The module of this package.
        environment: The virtual environment below `build/peers`; "" is the project's own.
        variant: What tells several columns of one module apart.
        ours: Whether it is not a peer but edgeopt.
        source: The kind of ONNX file of the workload that it starts from, if any (workloads/onnx_files.py).
        needs: A module of the project's own environment without which there is no such column.
        narrow: Whether its state is an approximation; it has no part in comparisons with those that keep all bits.
        compiles: Whether loading it takes minutes, which nobody should have to wait for.
        remark: What is different about what it computes, for the report.
        artifact: The peer whose artifact it runs; "" if it prepares its own.
    """

    name: str
    module: str
    environment: str
    variant: str = ""
    ours: bool = False
    source: str = ""
    needs: str = ""
    narrow: bool = False
    compiles: bool = False
    remark: str = ""
    artifact: str = ""


def implementation(module: ModuleType) -> Implementation:
    """The module as what it implements."""
    return cast(Implementation, module)
