"""Where bundles are read from and written to: paths that are none, and things at a path that are no files."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeopt_runtime import (
    BundleContents,
    BundleError,
    ForeignBundleError,
    StorageError,
    TrainingSession,
    read_bundle,
    write_bundle,
)


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    # Names of sockets are short; the file stays when the socket is closed.
    folder = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(folder)


def make_link_to_device(path: Path) -> None:
    path.symlink_to("/dev/null")


SPECIAL: list[tuple[Callable[[Path], None], Callable[[int], bool], str]] = [
    (make_pipe, stat.S_ISFIFO, "a pipe"),
    (make_socket, stat.S_ISSOCK, "a socket"),
    (make_link_to_device, stat.S_ISCHR, "a device"),
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("make", "is_kind", "words"), SPECIAL)
@pytest.mark.parametrize("suffix", ["", ".edgeopt", ".onnx"])
def test_what_is_no_file_is_neither_read_nor_replaced(session, tmp_path, make, is_kind, words, suffix):
    place = tmp_path / f"place{suffix}"
    make(place)
    with pytest.raises(ForeignBundleError, match="is not a regular file"):
        read_bundle(place)
    write = session.export_inference if suffix == ".onnx" else session.save
    with pytest.raises(StorageError, match=words):
        write(place)
    assert is_kind(place.stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == [place.name]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("make", "is_kind", "words"), SPECIAL)
@pytest.mark.parametrize("name", ["manifest.json", "step.onnx", "state.safetensors"])
def test_nor_within_a_folder(contents, tmp_path, make, is_kind, words, name):
    folder = tmp_path / "linear"
    write_bundle(folder, contents.manifest, contents.graphs, contents.state)
    (folder / name).unlink()
    make(folder / name)
    with pytest.raises(BundleError, match="is not a regular file"):
        read_bundle(folder)


BAD_PATHS: list[Any] = ["", "a\0b", "\ud800", "a" * 5000, "nothing/here", None, 3, 0.5, ["linear"], object()]


@pytest.mark.parametrize("path", BAD_PATHS, ids=lambda path: repr(path)[:12])
def test_paths_that_lead_nowhere(session, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BundleError) as refused:
        TrainingSession.load(path)
    assert str(refused.value).encode()
    with pytest.raises(StorageError) as refused_too:
        session.save(path)
    assert str(refused_too.value).encode()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", [".", "..", "/", "./", "inner/.."])
def test_folders_without_a_bundle_are_foreign(session, path, tmp_path, monkeypatch):
    (tmp_path / "here" / "inner").mkdir(parents=True)
    (tmp_path / "here" / "photo.jpg").touch()
    (tmp_path / "other.txt").touch()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ForeignBundleError, match=r"has no manifest\.json"):
        TrainingSession.load(path)
    with pytest.raises(StorageError, match="files that are not part of a bundle"):
        session.save(path)


def test_the_current_folder_may_be_a_bundle(contents, tmp_path, monkeypatch):
    write_bundle(tmp_path / "linear", contents.manifest, contents.graphs, contents.state)
    monkeypatch.chdir(tmp_path / "linear")
    session = TrainingSession.load(".")
    session.load_parameters({"weight": np.full((3, 2), 7, np.float32)})
    session.save(".")
    assert np.all(read_bundle(tmp_path / "linear").state["weight"] == 7)


def test_paths_of_bytes_and_of_other_classes_are_taken(contents, tmp_path):
    class Place:
        def __fspath__(self) -> bytes:
            return os.fsencode(tmp_path / "linear.edgeopt")

    write_bundle(Place(), contents.manifest, contents.graphs, contents.state)  # type: ignore[arg-type] # bytes
    assert read_bundle(os.fsdecode(os.fspath(Place()))).graphs == contents.graphs
    assert read_bundle(Place()).graphs == contents.graphs  # type: ignore[arg-type] # bytes


def test_links_that_lead_in_a_circle(session, tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(BundleError, match="cannot be read"):
        TrainingSession.load(tmp_path / "a")
    for write in (session.save, session.export_inference):
        with pytest.raises(StorageError, match="Could not write"):
            write(tmp_path / "a")
    assert (tmp_path / "a").is_symlink()


def test_a_link_to_nothing_makes_its_target(session, tmp_path):
    (tmp_path / "link.edgeopt").symlink_to(tmp_path / "real.edgeopt")
    session.save(tmp_path / "link.edgeopt")
    assert (tmp_path / "link.edgeopt").is_symlink()
    assert (tmp_path / "real.edgeopt").is_file()


def test_memory_of_any_shape_is_read(packed, contents):
    doubled = np.repeat(np.frombuffer(packed, np.uint8), 2)
    for view in (memoryview(packed), memoryview(doubled.data)[::2], memoryview(packed).cast("B", (1, len(packed)))):
        assert read_bundle(view).graphs == contents.graphs


def test_a_file_that_shrinks_while_it_is_read(contents, packed, tmp_path, monkeypatch):
    place = tmp_path / "linear.edgeopt"
    place.write_bytes(packed)
    real = os.fstat

    def shrink(descriptor: int) -> os.stat_result:
        status = real(descriptor)
        os.truncate(place, len(packed) // 2)
        return status

    monkeypatch.setattr("edgeopt_runtime.archive.os.fstat", shrink)
    with pytest.raises(BundleError):
        read_bundle(place)


def test_a_sparse_state_is_not_read(contents: BundleContents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "linear"
    write_bundle(folder, contents.manifest, contents.graphs, contents.state)
    size = 64 << 30
    os.truncate(folder / "state.safetensors", size)
    with pytest.raises(BundleError, match="differs"):
        read_bundle(folder)
    text = (folder / "manifest.json").read_text()
    old = f'"bytes": {sum(len(piece) for piece in _pieces(contents))}'
    assert old in text
    (folder / "manifest.json").write_text(text.replace(old, f'"bytes": {size}'))
    with pytest.raises(BundleError, match="can be at most"):
        read_bundle(folder)
    # Tensors as large as the file says: then the memory decides, here of 8 GiB.
    monkeypatch.setattr("edgeopt_runtime.archive.os.sysconf", {"SC_PHYS_PAGES": 2 << 20, "SC_PAGE_SIZE": 4096}.get)
    wide = text.replace(old, f'"bytes": {size + 1000}').replace('"shape": [\n    3\n   ]', f'"shape": [{size // 4}]')
    (folder / "manifest.json").write_text(wide)
    os.truncate(folder / "state.safetensors", size + 1000)
    with pytest.raises(BundleError, match="memory"):
        read_bundle(folder)


def _pieces(contents: BundleContents) -> list[Any]:
    from edgeopt_runtime.tensors import encode_state

    return encode_state(contents.manifest.tensors, contents.state)


def test_a_pipe_that_takes_the_place_of_a_file_does_not_block(packed, tmp_path, monkeypatch):
    # Between the look at the path and the opening of it.
    place = tmp_path / "linear.edgeopt"
    place.write_bytes(packed)
    real = os.open

    def swap(path, flags, *rest):
        if os.fspath(path) == str(place):
            place.unlink()
            os.mkfifo(place)
        return real(path, flags, *rest)

    monkeypatch.setattr("edgeopt_runtime.folders.os.open", swap)
    done = threading.Event()

    def read() -> None:
        with pytest.raises(ForeignBundleError, match="not a regular file"):
            read_bundle(place)
        done.set()

    threading.Thread(target=read, daemon=True).start()
    assert done.wait(10)
