from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from edgeopt_runtime import (
    BundleContents,
    BundleError,
    ForeignBundleError,
    ManifestError,
    StateError,
    TamperedBundleError,
    TrainingSession,
    TruncatedBundleError,
    UnsupportedVersionError,
    pack_bundle,
    read_bundle,
    stored_zip,
    write_bundle,
)


def same(actual: BundleContents, expected: BundleContents) -> bool:
    return (
        replace(actual.manifest, files={}) == replace(expected.manifest, files={})
        and actual.graphs == expected.graphs
        and actual.state.keys() == expected.state.keys()
        and all(np.array_equal(array, expected.state[name]) for name, array in actual.state.items())
    )


def rezip(packed: bytes, change=lambda files: files, **options) -> bytes:
    """The archive as the standard library writes it, with some files changed."""
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    changed = io.BytesIO()
    with zipfile.ZipFile(changed, "w", **options) as archive:
        for name, content in change(files).items():
            archive.writestr(name, content)
    return changed.getvalue()


@pytest.fixture
def folder(contents, tmp_path) -> Path:
    path = tmp_path / "linear"
    write_bundle(path, contents.manifest, contents.graphs, contents.state)
    return path


def test_all_three_forms_hold_the_same(contents, packed, bundle_path, folder):
    assert same(read_bundle(packed), contents)
    assert same(read_bundle(bundle_path), contents)
    assert same(read_bundle(str(bundle_path)), contents)
    assert same(read_bundle(folder), contents)
    assert same(read_bundle(bytearray(packed)), contents)


def test_the_folder_holds_the_documented_files(folder):
    assert sorted(os.listdir(folder)) == [
        "accumulate.onnx",
        "apply.onnx",
        "evaluate.onnx",
        "manifest.json",
        "predict.onnx",
        "state.safetensors",
        "step.onnx",
    ]


def test_the_suffix_decides_the_form(contents, tmp_path):
    for name, is_folder in [("a.edgeopt", False), ("b", True), ("c.bundle", True)]:
        write_bundle(tmp_path / name, contents.manifest, contents.graphs, contents.state)
        assert (tmp_path / name).is_dir() is is_folder
    (tmp_path / "d.edgeopt").mkdir()
    (tmp_path / "e").touch()
    for name, is_folder in [("d.edgeopt", True), ("e", False)]:
        write_bundle(tmp_path / name, contents.manifest, contents.graphs, contents.state)
        assert (tmp_path / name).is_dir() is is_folder
        assert same(read_bundle(tmp_path / name), contents)


def test_equal_bundles_are_equal_bytes(contents, packed):
    assert pack_bundle(contents.manifest, contents.graphs, contents.state) == packed


def test_zipfile_and_safetensors_read_what_we_write(contents, packed):
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert archive.testzip() is None
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
        assert json.loads(archive.read("manifest.json"))["format"] == "edgeopt"
        tensors = safetensors.numpy.load(archive.read("state.safetensors"))
    assert tensors.keys() == contents.state.keys()
    for name, array in tensors.items():
        np.testing.assert_array_equal(array, contents.state[name])
        assert array.dtype == contents.state[name].dtype


def test_we_read_what_zipfile_writes(contents, packed, folder, tmp_path):
    assert same(read_bundle(rezip(packed)), contents)
    # Entries with a time stamp, extra fields and a comment, in another order, and sizes after the data.
    stream = io.BytesIO()
    with zipfile.ZipFile(Unseekable(stream), "w") as archive:
        for path in sorted(folder.iterdir(), reverse=True):
            info = zipfile.ZipInfo(path.name, (2026, 1, 2, 3, 4, 6))
            info.extra = b"\x55\x54\x05\x00\x03abcd"
            info.comment = b"hello"
            archive.writestr(info, path.read_bytes())
        archive.comment = b"a bundle"
    assert same(read_bundle(stream.getvalue()), contents)


class Unseekable(io.RawIOBase):
    """A stream that only grows, for which `zipfile` writes sizes after the data."""

    def __init__(self, target: io.BytesIO) -> None:
        self._target = target

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        return self._target.write(data)


def test_sizes_beyond_32_bits_go_into_zip64_records(contents, packed, monkeypatch):
    # As if 32 bits ended at 100 bytes: every record that a bundle of many gigabytes needs is then there.
    monkeypatch.setattr(stored_zip, "LIMIT", 100)
    wide = pack_bundle(contents.manifest, contents.graphs, contents.state)
    assert len(wide) > len(packed)
    assert same(read_bundle(wide), contents)
    with zipfile.ZipFile(io.BytesIO(wide)) as archive:
        assert archive.testzip() is None
        assert archive.read("step.onnx") == contents.graphs["step.onnx"]


def test_zip64_records_of_zipfile_are_read(contents, packed, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    wide = rezip(packed)
    monkeypatch.undo()
    assert b"PK\6\6" in wide
    assert same(read_bundle(wide), contents)


def test_state_arrays_are_read_only(packed):
    with pytest.raises(ValueError, match="read-only"):
        read_bundle(packed).state["weight"][...] = 0


@pytest.mark.parametrize("length", [0, 1, 3, 4, 30, 1000, -1])
def test_a_cut_archive_is_truncated(packed, length):
    with pytest.raises(TruncatedBundleError):
        read_bundle(packed[:length])


@pytest.mark.parametrize("content", [b"hello world, this is no bundle", b"\x08\x07\x12", b"{}" * 20])
def test_other_files_are_foreign(content, tmp_path):
    with pytest.raises(ForeignBundleError, match="not a zip archive"):
        read_bundle(content)
    (tmp_path / "other.edgeopt").write_bytes(content)
    with pytest.raises(ForeignBundleError, match=r"other\.edgeopt"):
        read_bundle(tmp_path / "other.edgeopt")


def test_an_archive_without_manifest_is_foreign(packed):
    with pytest.raises(ForeignBundleError, match=r"no manifest\.json"):
        read_bundle(rezip(packed, lambda files: {"model/" + name: content for name, content in files.items()}))


def test_compressed_archives_are_refused(packed):
    with pytest.raises(ForeignBundleError, match="compressed"):
        read_bundle(rezip(packed, compression=zipfile.ZIP_DEFLATED))


def test_encrypted_entries_are_refused(packed):
    damaged = bytearray(rezip(packed))
    position = damaged.rindex(b"PK\1\2")
    damaged[position + 8] |= 1
    with pytest.raises(ForeignBundleError, match="encrypted"):
        read_bundle(bytes(damaged))


def test_an_archive_with_something_in_front_is_refused(packed):
    with pytest.raises(ForeignBundleError):
        read_bundle(b"#!/bin/sh\n" + packed)
    with pytest.raises(BundleError):
        read_bundle(b"PK\3\4" + packed)


def test_the_same_name_twice_is_refused(packed):
    stream = io.BytesIO(packed)
    with zipfile.ZipFile(stream, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("step.onnx", b"other")
    with pytest.raises(TamperedBundleError, match="twice"):
        read_bundle(stream.getvalue())


def test_entries_that_share_bytes_are_refused(packed):
    # The directory entry of the last file points to the data of the first: how zip bombs count bytes twice.
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        *_, last = archive.infolist()
    damaged = bytearray(packed)
    position = damaged.rindex(b"PK\1\2")
    damaged[position + 42 : position + 46] = (0).to_bytes(4, "little")
    assert last.header_offset > 0
    with pytest.raises(TamperedBundleError, match="overlaps"):
        read_bundle(bytes(damaged))


@pytest.mark.parametrize("name", ["../evil.onnx", "/etc/passwd", "notes.txt", "step.onnx.bak", "sub/step.onnx"])
def test_unknown_files_are_refused(packed, name):
    with pytest.raises(TamperedBundleError, match="does not list"):
        read_bundle(rezip(packed, lambda files: {**files, name: b"x"}))


@pytest.mark.parametrize("name", ["step.onnx", "state.safetensors"])
def test_files_must_be_those_of_the_manifest(packed, folder, name):
    def without(files):
        return {other: content for other, content in files.items() if other != name}

    def flipped(files):
        return {**files, name: files[name][:-1] + bytes([files[name][-1] ^ 1])}

    def shorter(files):
        return {**files, name: files[name][:-1]}

    def longer(files):
        return {**files, name: files[name] + b"\0"}

    for change, error, words in [
        (without, TruncatedBundleError, "is missing"),
        (shorter, TruncatedBundleError, "it must have"),
        (flipped, TamperedBundleError, "SHA-256"),
        (longer, TamperedBundleError, "SHA-256"),
    ]:
        with pytest.raises(error, match=words):
            read_bundle(rezip(packed, change))
        original = (folder / name).read_bytes()
        changed = change({name: original}).get(name)
        (folder / name).unlink() if changed is None else (folder / name).write_bytes(changed)
        with pytest.raises(error, match=words):
            read_bundle(folder)
        (folder / name).write_bytes(original)


def test_folders_may_hold_what_desktops_leave(contents, folder):
    (folder / ".DS_Store").write_bytes(b"x")
    assert same(read_bundle(folder), contents)
    (folder / "notes.txt").write_bytes(b"x")
    with pytest.raises(TamperedBundleError, match=r"notes\.txt"):
        read_bundle(folder)


def test_only_regular_files_are_opened(folder):
    (folder / "step.onnx").unlink()
    os.mkfifo(folder / "step.onnx")
    with pytest.raises(TamperedBundleError, match="not a regular file"):
        read_bundle(folder)


def test_symbolic_links_are_followed(contents, folder, tmp_path):
    # Download caches keep the files elsewhere and link to them.
    (folder / "state.safetensors").rename(tmp_path / "blob")
    (folder / "state.safetensors").symlink_to(tmp_path / "blob")
    assert same(read_bundle(folder), contents)


def test_a_path_that_leads_nowhere_says_so(tmp_path):
    with pytest.raises(BundleError, match=r"nothing\.edgeopt cannot be read: .*No such file"):
        read_bundle(tmp_path / "nothing.edgeopt")
    with pytest.raises(BundleError, match="cannot be read"):
        read_bundle("a\0b")


def test_a_newer_onnxruntime_is_asked_for(contents):
    packed = pack_bundle(replace(contents.manifest, minimum_onnxruntime="9.1"), contents.graphs, contents.state)
    with pytest.raises(UnsupportedVersionError, match=r"ONNX Runtime 9\.1 or newer"):
        read_bundle(packed)


def test_files_listed_must_be_those_of_the_signatures(packed):
    def change(files):
        document = json.loads(files["manifest.json"])
        del document["files"]["step.onnx"]
        return {**files, "manifest.json": json.dumps(document)}

    with pytest.raises(ManifestError, match="`files` must list"):
        read_bundle(rezip(packed, change))


def test_a_huge_manifest_is_not_read(packed):
    with pytest.raises(ForeignBundleError, match="more than any bundle needs"):
        read_bundle(rezip(packed, lambda files: {**files, "manifest.json": b" " * ((1 << 26) + 1)}))


def _restate(packed, change):
    """The bundle with another, well-hashed state file."""

    def apply(files):
        content = change(files["state.safetensors"])
        document = json.loads(files["manifest.json"])
        document["files"]["state.safetensors"] = {
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        return {**files, "state.safetensors": content, "manifest.json": json.dumps(document)}

    return rezip(packed, apply)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda tensors: {**tensors, "extra": np.zeros(1)}, TamperedBundleError, "does not know: `extra`"),
        (lambda tensors: {k: v for k, v in tensors.items() if k != "bias"}, TruncatedBundleError, "lacks .* `bias`"),
        (lambda tensors: {**tensors, "bias": np.zeros(2)}, TamperedBundleError, "`bias` as 'F64'"),
        (lambda tensors: {**tensors, "bias": np.zeros((2, 1), np.float32)}, TamperedBundleError, r"shape \[2, 1\]"),
        (
            lambda tensors: {**tensors, "accumulator.bias": np.zeros(2, np.float32)},
            TruncatedBundleError,
            "lacks .* `accumulator.weight`, `accumulator.weight_sum`",
        ),
    ],
)
def test_the_state_must_be_that_of_the_manifest(packed, change, error, words):
    changed = _restate(packed, lambda content: safetensors.numpy.save(change(safetensors.numpy.load(content))))
    with pytest.raises(error, match=words):
        read_bundle(changed)


def test_a_state_file_of_another_format_is_refused(packed):
    with pytest.raises(TamperedBundleError, match="not a safetensors file"):
        read_bundle(_restate(packed, lambda content: b"\xff" * 16))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda m, g, s: (m, g, {**s, "weight": np.zeros((2, 3), np.float32)}), StateError, r"shape \[3, 2\]"),
        (lambda m, g, s: (m, g, {k: v for k, v in s.items() if k != "bias"}), StateError, "no array for .* `bias`"),
        (lambda m, g, s: (m, {"step.onnx": b""}, s), ManifestError, "The signatures name the files"),
        (lambda m, g, s: (replace(m, opset=0), g, s), ManifestError, "opset"),
        (lambda m, g, s: (replace(m, producer={"by": "\ud800"}), g, s), ManifestError, "cannot be written as JSON"),
        (
            lambda m, g, s: (replace(m, producer={"by": np.float32(1)}), g, s),
            ManifestError,
            "cannot be written as JSON",
        ),
        (lambda m, g, s: (replace(m, producer={"by": np.nan}), g, s), ManifestError, "cannot be written as JSON"),
    ],
)
def test_nothing_is_written_that_could_not_be_read(contents, tmp_path, change, error, words):
    with pytest.raises(error, match=words):
        write_bundle(tmp_path / "bad.edgeopt", *change(contents.manifest, contents.graphs, contents.state))
    assert list(tmp_path.iterdir()) == []


def test_arrays_need_not_be_contiguous(contents):
    state = {**contents.state, "weight": np.asfortranarray(contents.state["weight"])}
    assert same(read_bundle(pack_bundle(contents.manifest, contents.graphs, state)), contents)


def test_loading_reports_the_same_errors(packed):
    with pytest.raises(TruncatedBundleError):
        TrainingSession.load(packed[:-30])
