"""Data for the command line: `.npz` files whose arrays carry the names of a bundle's inputs."""

from __future__ import annotations

import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeopt.cli.errors import CommandError
from edgeopt_runtime import StorageError, stored_zip
from edgeopt_runtime.atomic import replace_file
from edgeopt_runtime.batch import BatchReader
from edgeopt_runtime.manifest import InputSpec

__all__ = ["DEFAULT_BATCH_SIZE", "Samples", "read_samples", "write_arrays"]

DEFAULT_BATCH_SIZE = 32

# What numpy and zipfile raise at files that are damaged, encrypted, compressed in unknown ways, or no .npz at all.
_UNREADABLE = (
    *(OSError, ValueError, EOFError, KeyError, RuntimeError, OverflowError, MemoryError, SyntaxError, struct.error),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)


@dataclass(frozen=True)
class Samples:
    """Arrays by input name; axis 0 counts samples and is equally long in all of them.

    Attributes:
        arrays: One array an input.
        count: The number of samples.
        fixed_batch: The batch size that the bundle was exported with, if it takes no other.
    """

    arrays: Mapping[str, NDArray[Any]]
    count: int
    fixed_batch: int | None = None

    def batch_size(self, wanted: int | None) -> int:
        """The batch size to use.

        Raises:
            CommandError: The bundle takes batches of another size only, or there are fewer samples than it takes.
        """
        if self.fixed_batch is None:
            return wanted or DEFAULT_BATCH_SIZE
        if wanted not in (None, self.fixed_batch):
            raise CommandError(
                f"The bundle takes batches of {self.fixed_batch} only, not of {wanted}: it was exported with a fixed "
                "batch size. Leave --batch-size out, or export it again without --fixed-batch."
            )
        if self.count < self.fixed_batch:
            raise CommandError(f"There are {self.count} samples, and the bundle takes batches of {self.fixed_batch}.")
        return self.fixed_batch

    def shuffled(self, size: int, rng: np.random.Generator) -> list[dict[str, NDArray[Any]]]:
        """One epoch of batches in random order; what is left over makes a short batch if the bundle allows one."""
        order = rng.permutation(self.count)
        whole = self.count - self.count % size
        end = self.count if self.fixed_batch is None else whole
        return [self._take(order[start : min(start + size, end)]) for start in range(0, end, size)]

    def check_divides(self, size: int) -> None:
        """Make sure that `in_order` has no samples left over that make no batch.

        Raises:
            CommandError: The bundle takes batches of one size only, and some samples would be left over.
        """
        if self.fixed_batch is not None and self.count % size:
            raise CommandError(
                f"{self.count} samples do not divide into batches of {size}, and the bundle takes no others. Leave "
                f"{self.count % size} samples out, or export it again without --fixed-batch."
            )

    def in_order(self, size: int) -> Iterator[dict[str, NDArray[Any]]]:
        """All samples as they come, in batches. Raises what `check_divides` raises."""
        self.check_divides(size)
        for start in range(0, self.count, size):
            yield {name: array[start : start + size] for name, array in self.arrays.items()}

    def _take(self, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        return {name: array[rows] for name, array in self.arrays.items()}


def read_samples(path: Path, specs: Sequence[InputSpec]) -> Samples:
    """Read the arrays that a graph takes; others in the file are left alone.

    Raises:
        CommandError: The file is no `.npz` file, lacks an input, or its arrays do not belong together.
        BatchError: An array has the wrong dtype or shape.
    """
    try:
        with path.open("rb") as stream:
            file = np.load(stream, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise CommandError(f"{path} holds one array without a name; save it with numpy.savez.")
            missing = [spec.name for spec in specs if spec.name not in file.files]
            if missing:
                raise CommandError(
                    f"{path} lacks {_listing(missing)}. The bundle takes {_listing([spec.name for spec in specs])}; "
                    f"the file holds {_listing(file.files) or 'nothing'}."
                )
            arrays = {spec.name: file[spec.name] for spec in specs}
    except _UNREADABLE as error:
        raise CommandError(f"{path} cannot be read as an .npz file: {error}") from error
    lengths = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(lengths.values())) != 1:
        counts = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise CommandError(f"The arrays of {path} differ in their number of samples (axis 0): {counts}.")
    count = next(iter(lengths.values()))
    if count == 0:
        raise CommandError(f"{path} holds no samples.")
    fixed = next((int(spec.shape[0]) for spec in specs if spec.shape and isinstance(spec.shape[0], int)), None)
    if fixed is None or fixed <= count:
        # A few of them, so that what does not fit is found before the first epoch, and not in the validation after it.
        BatchReader(specs, ())({name: array[: fixed or 1] for name, array in arrays.items()})
    return Samples(arrays, count, fixed)


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an `.npz` file under exactly this name; unlike `numpy.savez` with an array of any name, `file` included.

    A file that is there stays whole until the new one is.

    Raises:
        CommandError: It cannot be written.
    """
    try:
        replace_file(path, stored_zip.pack((f"{name}.npy", [_npy(array)]) for name, array in arrays.items()))
    except StorageError as error:
        raise CommandError(f"{path} cannot be written: {error}") from error


def _npy(array: NDArray[Any]) -> memoryview:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=False)
    return buffer.getbuffer()


def _listing(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
