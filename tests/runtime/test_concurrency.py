"""Folders that are read while they are saved, saved by several at once, and saved by processes that die."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgeopt_runtime import BundleError, StorageError, atomic, folders, locks, read_bundle, write_bundle

FILES = ["accumulate.onnx", "apply.onnx", "evaluate.onnx", "manifest.json", "predict.onnx", "state.safetensors"]
FILES += ["step.onnx"]

WORK = """
import sys, time
from edgeopt_runtime import read_bundle, write_bundle
import numpy as np
path, role, until = sys.argv[1], sys.argv[2], float(sys.argv[3])
contents = read_bundle(path)
count = 0
while time.time() < until:
    count += 1
    if role == "read":
        state = read_bundle(path).state
        assert state["weight"][0, 0] == state["bias"][0], "of two bundles"
    else:
        value = np.float32(count % 3)
        state = {**contents.state, "weight": np.full((3, 2), value), "bias": np.full(2, value)}
        write_bundle(path, contents.manifest, contents.graphs, state)
print(count)
"""


def together(path: Path, seconds: float, *roles: str) -> list[int]:
    """How often each process read or wrote; none may have failed."""
    until = str(time.time() + 1.5 + seconds)
    processes = [
        subprocess.Popen([sys.executable, "-c", WORK, str(path), role, until], stdout=subprocess.PIPE, text=True)
        for role in roles
    ]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(roles)
    return [int(output) for output in outputs]


@pytest.fixture(params=["linear", "linear.edgeopt"])
def place(request, contents, tmp_path):
    path = tmp_path / request.param
    state = {**contents.state, "weight": np.zeros((3, 2), np.float32), "bias": np.zeros(2, np.float32)}
    write_bundle(path, contents.manifest, contents.graphs, state)
    return path


def test_readers_and_writers_do_not_disturb_each_other(place):
    loads, saves, more_saves = together(place, 2.0, "read", "save", "save")
    assert loads > 20
    assert saves > 20
    assert more_saves > 20
    assert read_bundle(place)
    if place.is_dir():
        assert sorted(path.name for path in place.iterdir()) == FILES


def test_several_make_a_new_folder_at_once(contents, tmp_path):
    for round_ in range(20):
        path = tmp_path / str(round_)
        errors: list[Exception] = []

        def save(path: Path = path, errors: list[Exception] = errors) -> None:
            try:
                write_bundle(path, contents.manifest, contents.graphs, contents.state)
            except StorageError as error:
                errors.append(error)

        threads = [threading.Thread(target=save) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert read_bundle(path).graphs == contents.graphs
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(str(round_) for round_ in range(20))


DIE = """
import os, sys
import numpy as np
from edgeopt_runtime import read_bundle, write_bundle
path = sys.argv[1]
contents = read_bundle(path)
seen = set()
for at in range(1, 500):
    value = np.float32(at)
    # A graph changes too, now and then.
    graphs = {**contents.graphs, "predict.onnx": contents.graphs["predict.onnx"] + bytes([0x2a, 0]) * (at % 3)}
    child = os.fork()
    if not child:
        calls = 0
        def dying(real):
            def call(*args, **kwargs):
                global calls
                calls += 1
                if calls == at:
                    os._exit(9)
                return real(*args, **kwargs)
            return call
        for name in ("open", "write", "fsync", "close", "replace", "rename", "mkdir", "unlink", "listdir"):
            setattr(os, name, dying(getattr(os, name)))
        state = {**contents.state, "weight": np.full((3, 2), value), "bias": np.full(2, value)}
        write_bundle(path, contents.manifest, graphs, state)
        os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    now = read_bundle(path)
    assert now.state["weight"][0, 0] == now.state["bias"][0]
    saved = now.state["bias"][0] == value
    assert not saved or now.graphs == graphs
    seen.add((ended, bool(saved)))
    if ended == 0:
        break
assert seen == {(9, False), (9, True), (0, True)}, seen
print(at, *(sorted(name for name in os.listdir(path) if name[0] != ".") if os.path.isdir(path) else ()))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_a_process_that_dies_anywhere_in_a_save_loses_nothing(place):
    done = subprocess.run([sys.executable, "-c", DIE, str(place)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    calls, *names = done.stdout.split()
    assert int(calls) > 10
    # The last save went through, and tidied up after the others.
    assert names == (FILES if place.is_dir() else [])


def test_a_save_waits_for_another_and_gives_up_after_a_while(contents, tmp_path, monkeypatch):
    path = tmp_path / "linear"
    write_bundle(path, contents.manifest, contents.graphs, contents.state)
    monkeypatch.setattr(locks, "PATIENCE", 0.2)
    with locks.exclusive(path), pytest.raises(StorageError, match="Someone else has been saving to"):
        write_bundle(path, contents.manifest, contents.graphs, contents.state)
    write_bundle(path, contents.manifest, contents.graphs, contents.state)


def test_a_file_system_without_locks_is_written_all_the_same(contents, tmp_path, monkeypatch):
    def refuse(descriptor: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(locks, "_take", refuse)
    for _ in range(2):
        write_bundle(tmp_path / "linear", contents.manifest, contents.graphs, contents.state)
    assert read_bundle(tmp_path / "linear").graphs == contents.graphs


def test_what_did_not_change_is_not_written_again(contents, tmp_path):
    path = tmp_path / "linear"
    write_bundle(path, contents.manifest, contents.graphs, contents.state)
    before = {file.name: file.stat().st_ino for file in path.iterdir()}
    changed = {**contents.state, "bias": np.ones(2, np.float32)}
    write_bundle(path, contents.manifest, contents.graphs, changed)
    after = {file.name: file.stat().st_ino for file in path.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {"manifest.json", "state.safetensors"}
    # But what was damaged is mended.
    (path / "step.onnx").write_bytes(b"x" * (path / "step.onnx").stat().st_size)
    write_bundle(path, contents.manifest, contents.graphs, changed)
    assert read_bundle(path).graphs == contents.graphs


def test_what_a_killed_writer_left_in_the_folder_is_removed_by_the_next(contents, tmp_path):
    path = tmp_path / "linear"
    write_bundle(path, contents.manifest, contents.graphs, contents.state)
    for name in (".edgeopt-0123456789abcdef.tmp", "state.0123456789abcdef.safetensors"):
        (path / name).write_bytes(b"x")
    assert read_bundle(path)
    time.sleep(0.01)
    write_bundle(path, contents.manifest, contents.graphs, contents.state)
    assert sorted(file.name for file in path.iterdir()) == FILES


def test_graphs_that_the_new_bundle_lacks_are_removed(contents, tmp_path):
    path = tmp_path / "linear"
    write_bundle(path, contents.manifest, contents.graphs, contents.state)
    signatures = {"predict": contents.manifest.signatures["predict"]}
    graphs = {"predict.onnx": contents.graphs["predict.onnx"]}
    write_bundle(path, replace(contents.manifest, signatures=signatures), graphs, contents.state)
    assert sorted(file.name for file in path.iterdir()) == ["manifest.json", "predict.onnx", "state.safetensors"]


def test_an_interrupt_after_the_manifest_is_in_place_loses_nothing(contents, tmp_path, monkeypatch):
    path = tmp_path / "linear"
    write_bundle(path, contents.manifest, contents.graphs, contents.state)
    changed = {**contents.state, "bias": np.ones(2, np.float32)}
    real = atomic.put_in_place

    def interrupted(temporary: Path, target: Path) -> None:
        real(temporary, target)
        if target.name == "manifest.json":
            raise KeyboardInterrupt

    monkeypatch.setattr(folders, "put_in_place", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_bundle(path, contents.manifest, contents.graphs, changed)
    assert np.all(read_bundle(path).state["bias"] == 1)


def test_a_bundle_that_never_holds_still_is_given_up(contents, tmp_path, monkeypatch):
    path = tmp_path / "linear"
    write_bundle(path, contents.manifest, contents.graphs, contents.state)
    monkeypatch.setattr("edgeopt_runtime.archive.PATIENCE", 0.1)
    monkeypatch.setattr("edgeopt_runtime.folders.os.path.sameopenfile", lambda first, second: False)
    with pytest.raises(BundleError, match="saved so often"):
        read_bundle(path)
