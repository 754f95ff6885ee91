from __future__ import annotations

import contextlib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeopt.cli.arrays import Samples, read_samples, write_arrays
from edgeopt.cli.errors import CommandError
from edgeopt.errors import EdgeoptError
from edgeopt_runtime.manifest import InputSpec

SPECS = (InputSpec("x", "model", "float32", ("batch", 2)), InputSpec("target", "loss", "int64", ("batch",)))
FIXED = (InputSpec("x", "model", "float32", (4, 2)),)


def save(path: Path, **arrays: Any) -> Path:
    with path.open("wb") as file:
        np.savez(file, **arrays)
    return path


def test_arrays_are_read_by_name(tmp_path: Path) -> None:
    samples = read_samples(
        save(tmp_path / "data", x=np.ones((3, 2), np.float32), target=np.arange(3), other=np.ones(9)), SPECS
    )
    assert samples.count == 3
    assert samples.arrays.keys() == {"x", "target"}
    assert samples.fixed_batch is None


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.ones((3, 2))}, "lacks `target`. The bundle takes `x`, `target`; the file holds `x`"),
        ({}, "lacks `x`, `target`. .*; the file holds nothing"),
        (
            {"x": np.ones((3, 2)), "target": np.arange(4)},
            r"differ in their number of samples \(axis 0\): x 3, target 4",
        ),
        ({"x": np.ones((0, 2)), "target": np.arange(0)}, "holds no samples"),
        ({"x": np.ones((1, 2)), "target": np.array([{}])}, "cannot be read as an .npz file"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        read_samples(save(tmp_path / "data.npz", **arrays), SPECS)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    path.write_bytes(b"PK\x03\x04 and then nonsense")
    with pytest.raises(CommandError, match=r"cannot be read as an \.npz file"):
        read_samples(path, SPECS)
    with path.open("wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(CommandError, match="one array without a name"):
        read_samples(path, SPECS)


@given(count=st.integers(1, 40), size=st.integers(1, 12), seed=st.integers(0, 3))
def test_an_epoch_holds_every_sample_once(count: int, size: int, seed: int) -> None:
    samples = Samples({"x": np.arange(count)}, count)
    shuffled = samples.shuffled(size, np.random.default_rng(seed))
    assert [len(batch["x"]) for batch in shuffled[:-1]] == [size] * (len(shuffled) - 1)
    assert len(shuffled) == len(range(0, count, size))
    assert sorted(np.concatenate([batch["x"] for batch in shuffled])) == list(range(count))
    ordered = np.concatenate([batch["x"] for batch in samples.in_order(size)])
    np.testing.assert_array_equal(ordered, np.arange(count))


def test_a_fixed_batch_size_holds(tmp_path: Path) -> None:
    samples = read_samples(save(tmp_path / "data.npz", x=np.ones((10, 2), np.float32)), FIXED)
    assert samples.batch_size(None) == samples.batch_size(4) == 4
    assert [len(batch["x"]) for batch in samples.shuffled(4, np.random.default_rng(0))] == [4, 4]
    with pytest.raises(CommandError, match="takes batches of 4 only, not of 5"):
        samples.batch_size(5)
    with pytest.raises(CommandError, match="10 samples do not divide into batches of 4"):
        list(samples.in_order(4))
    with pytest.raises(CommandError, match="There are 3 samples"):
        Samples({}, 3, fixed_batch=4).batch_size(None)


def test_what_is_written_is_read_back_under_any_name(tmp_path: Path) -> None:
    arrays = {"file": np.arange(3.0), "a.b": np.ones((2, 2), np.int64)}
    write_arrays(tmp_path / "out", arrays)
    assert zipfile.is_zipfile(tmp_path / "out")
    with np.load(tmp_path / "out") as file:
        assert set(file.files) == set(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(file[name], array)


def test_a_path_that_cannot_be_written_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be written"):
        write_arrays(tmp_path / "nowhere" / "out.npz", {"x": np.ones(1)})


def test_arrays_are_not_written_over_a_device(tmp_path):
    (tmp_path / "out.npz").symlink_to("/dev/null")
    with pytest.raises(CommandError, match="is a device"):
        write_arrays(tmp_path / "out.npz", {"x": np.ones(1)})


@pytest.mark.parametrize("seed", range(40))
def test_damaged_files_are_errors_of_ours(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "data.npz"
    np.savez_compressed(path, x=np.ones((30, 2), np.float32), target=np.arange(30))
    rng, content = np.random.default_rng(seed), bytearray(path.read_bytes())
    for place in rng.integers(0, len(content), 6):
        content[place] = rng.integers(0, 256)
    path.write_bytes(content[: rng.integers(len(content) // 2, len(content) + 1)] if seed % 2 else content)
    with contextlib.suppress(EdgeoptError):
        assert read_samples(path, SPECS).count == 30
