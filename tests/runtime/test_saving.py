"""Whatever goes wrong while saving, at whatever point: the bundle that was there before is whole."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from edgeopt_runtime import StorageError, TrainingSession, atomic, read_bundle, write_bundle

CALLS = ("open", "write", "fsync", "close", "replace", "rename", "mkdir", "unlink", "rmdir", "listdir")


class Fault:
    """Makes the n-th call of the functions of `os` that saving uses fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.fail_at = 0
        self.log: list[str] = []
        for name in CALLS:
            monkeypatch.setattr(f"{atomic.__name__}.os.{name}", self._wrap(name, getattr(os, name)))

    def _wrap(self, name, function):
        def wrapped(*args, **kwargs):
            self.calls += 1
            self.log.append(name)
            if self.calls == self.fail_at:
                if name == "close":
                    function(*args, **kwargs)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return function(*args, **kwargs)

        return wrapped


@pytest.fixture(params=["linear.edgeopt", "linear"])
def place(request, contents, tmp_path) -> Path:
    """A bundle, packed or as a folder, alone in its folder."""
    path = tmp_path / "saved" / request.param
    path.parent.mkdir()
    write_bundle(path, contents.manifest, contents.graphs, contents.state)
    return path


def weights(path: Path) -> np.ndarray:
    return read_bundle(path).state["weight"]


def failure_of_saving(session: TrainingSession, place: Path) -> StorageError | None:
    try:
        session.save(place)
    except StorageError as error:
        return error
    return None


def test_a_failure_at_any_point_leaves_the_old_bundle_or_the_new_one(place, make_batches, monkeypatch):
    session = TrainingSession.load(place)
    before = session.parameters()["weight"]
    session.step(make_batches(4)[0])
    after = session.parameters()["weight"]
    outcomes: list[bool] = []
    finished = False
    while not finished:
        with monkeypatch.context() as patch:
            fault = Fault(patch)
            fault.fail_at = len(outcomes) + 1
            error = failure_of_saving(session, place)
        finished = fault.calls < fault.fail_at
        now = weights(place)
        saved = np.array_equal(now, after)
        outcomes.append(saved)
        assert saved or np.array_equal(now, before), fault.log
        assert saved == (error is None), fault.log
        assert error is None or ("No space left" in str(error) and "unchanged" in str(error))
        # What could not be removed is all that may be left.
        removing = not finished and fault.log[fault.fail_at - 1] in ("unlink", "rmdir", "listdir")
        left = [path for path in place.parent.iterdir() if path.name.endswith(".tmp")]
        assert not left or removing, fault.log
        if saved and not finished:
            session.load_parameters({"weight": before})
            session.save(place)
            session.load_parameters({"weight": after})
    assert outcomes[-1]
    assert outcomes.count(False) > 8


def test_a_full_disk_while_writing_removes_what_was_written(place, make_batches, monkeypatch):
    session = TrainingSession.load(place)
    before = session.state()
    session.step(make_batches(4)[0])
    real = os.write
    written = 0

    def write(descriptor, data):
        nonlocal written
        if written > 500:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += len(data)
        return real(descriptor, data)

    monkeypatch.setattr(f"{atomic.__name__}.os.write", write)
    with pytest.raises(StorageError, match="No space left on device"):
        session.save(place)
    monkeypatch.undo()
    assert [path.name for path in place.parent.iterdir()] == [place.name]
    np.testing.assert_array_equal(weights(place), before["weight"])
    session.save(place)
    np.testing.assert_array_equal(weights(place), session.parameters()["weight"])


def test_short_writes_are_continued(contents, tmp_path, monkeypatch, packed):
    real = os.write
    monkeypatch.setattr(f"{atomic.__name__}.os.write", lambda descriptor, data: real(descriptor, data[:7]))
    write_bundle(tmp_path / "a.edgeopt", contents.manifest, contents.graphs, contents.state)
    assert (tmp_path / "a.edgeopt").read_bytes() == packed


def test_an_interrupt_leaves_nothing_behind(place, monkeypatch):
    session = TrainingSession.load(place)

    def interrupted(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"{atomic.__name__}.os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.save(place)
    assert [path.name for path in place.parent.iterdir()] == [place.name]
    assert TrainingSession.load(place)


SAVE_FOREVER = """
import os, sys, time
from edgeopt_runtime import TrainingSession, atomic
session = TrainingSession.load(sys.argv[1], threads=1)
real = os.write
atomic.os.write = lambda descriptor, data: (time.sleep(0.0002), real(descriptor, data[:200]))[1]
print("ready", flush=True)
while True:
    session.load_parameters({"weight": session.parameters()["weight"] + 1})
    session.save(sys.argv[1])
"""


def test_killed_processes_leave_a_whole_bundle(place):
    for delay in (0.01, 0.05, 0.11, 0.17):
        process = subprocess.Popen([sys.executable, "-c", SAVE_FOREVER, str(place)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert TrainingSession.load(place).state()["step"] == 0
    TrainingSession.load(place).save(place)
    assert TrainingSession.load(place)


def test_leftovers_of_killed_processes_are_removed_after_an_hour(place):
    old, young = place.parent / ".edgeopt-0.tmp", place.parent / ".edgeopt-1.tmp"
    old_folder = place.parent / ".edgeopt-2.tmp"
    for path in (old, young):
        path.write_bytes(b"x")
    old_folder.mkdir()
    (old_folder / "step.onnx").write_bytes(b"x")
    for path in (old, old_folder):
        os.utime(path, (1, 1))
    TrainingSession.load(place).save(place)
    assert sorted(path.name for path in place.parent.iterdir()) == sorted([young.name, place.name])


def test_folders_with_other_files_are_not_replaced(session, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"x")
    with pytest.raises(StorageError, match=r"cat\.jpg"):
        session.save(tmp_path / "photos")
    assert (tmp_path / "photos" / "cat.jpg").read_bytes() == b"x"
    (tmp_path / "empty").mkdir()
    session.save(tmp_path / "empty")
    assert TrainingSession.load(tmp_path / "empty")


def test_a_folder_that_does_not_exist_is_not_made(session, tmp_path):
    for name in ("missing/linear.edgeopt", "missing/linear"):
        with pytest.raises(StorageError, match="No such file or directory"):
            session.save(tmp_path / name)


def test_a_link_stays_a_link(session, place, tmp_path):
    link = tmp_path / ("link" + place.suffix)
    link.symlink_to(place)
    session.load_parameters({"weight": np.full((3, 2), 5, np.float32)})
    session.save(link)
    assert link.is_symlink()
    assert np.all(weights(place) == 5)


def test_new_files_have_ordinary_permissions(session, tmp_path):
    mask = os.umask(0o022)
    try:
        session.save(tmp_path / "a.edgeopt")
    finally:
        os.umask(mask)
    assert (tmp_path / "a.edgeopt").stat().st_mode & 0o777 == 0o644
