"""What is said when a batch cannot be worked with, or training ends too soon."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgeopt_runtime import BatchError, BundleContents, ExecutionError, History, ManifestError, TrainingSession
from edgeopt_runtime.batch import BatchReader
from edgeopt_runtime.manifest import InputSpec
from edgeopt_runtime.parsing import parse_manifest

LABELS = InputSpec("target", "loss", "int64", ("batch", "time"), classes=3, ignored=-100)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (
            [[0, 1], [2, 3]],
            r"`target` holds 3 at \(1, 1\), which is no class: there are 3, numbered from 0 to 2, and -100",
        ),
        ([[1, 2], [-100, 3]], "numbered from 1: subtract 1"),
        ([[0, -1], [2, 2]], r"holds -1 at \(0, 1\)"),
        ([[-100, -100], [-99, 0]], r"holds -99 at \(1, 0\)"),
        ([[2**62, -(2**62)]], r"holds 4611686018427387904 at \(0, 0\)"),
    ],
)
def test_labels_that_are_no_class_are_named(labels: Any, words: str) -> None:
    with pytest.raises(BatchError, match=words):
        BatchReader([LABELS], [])({"target": np.array(labels)})


@pytest.mark.parametrize("labels", [[[0, 1], [2, 0]], [[-100, -100]], [[2, -100]], np.zeros((0, 3), np.int64)])
def test_labels_that_are_classes_or_ignored_pass(labels: Any) -> None:
    given = np.array(labels)
    assert BatchReader([LABELS], [])({"target": given})["target"] is given


def test_small_types_are_compared_as_they_are() -> None:
    read = BatchReader([InputSpec("target", "loss", "uint8", ("batch",), classes=200)], [])
    read({"target": np.array([199, 0], np.uint8)})
    with pytest.raises(BatchError, match="holds 200 at"):
        read({"target": np.array([0, 200], np.uint8)})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dtype": "int64", "classes": 0}, r"inputs\[1\].classes` must be a whole number from 1"),
        ({"classes": 3}, r"inputs\[1\].classes` is for arrays of whole numbers"),
        ({"dtype": "int64", "ignored": -1}, r"inputs\[1\].ignored` is for arrays with classes"),
    ],
)
def test_classes_in_a_manifest_make_sense(contents: BundleContents, change: dict[str, Any], words: str) -> None:
    inputs = (contents.manifest.inputs[0], replace(contents.manifest.inputs[1], **change))
    with pytest.raises(ManifestError, match=words):
        parse_manifest(replace(contents.manifest, inputs=inputs).to_json())


@pytest.mark.parametrize("policy", ["raise", "skip", "ignore"])
@pytest.mark.parametrize("call", ["step", "accumulate"])
def test_an_empty_batch_is_called_that(packed: bytes, make_batches: Any, call: str, policy: Any) -> None:
    session = TrainingSession.load(packed, on_nonfinite=policy)
    with pytest.raises(BatchError, match=r"The batch is empty: `x` has shape \[0, 3\]"):
        getattr(session, call)(make_batches(0)[0])


def test_an_empty_batch_adds_nothing_to_an_evaluation(session: TrainingSession, make_batches: Any) -> None:
    full, empty = make_batches(4, 0)
    assert session.evaluate([empty, full, empty]) == session.evaluate(full)


class Failing:
    """Stands for ONNX Runtime where it fails with certain words."""

    def __init__(self, real: Any, error: Exception) -> None:
        self.io_binding, self.error = real.io_binding, error

    def run_with_iobinding(self, binding: Any) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError("std::bad_alloc"), "not enough memory. Take smaller batches"),
        (RuntimeError("Failed to allocate memory for requested buffer of size 4096"), "not enough memory"),
        (RuntimeError("[E] BFCArena::AllocateRawInternal bad allocation"), "not enough memory"),
        (RuntimeError("something else"), "Compare the shapes and values"),
    ],
)
def test_the_advice_fits_the_failure(session: TrainingSession, make_batches: Any, error: Exception, words: str) -> None:
    (batch,) = make_batches(2)
    session.step(batch)
    before = session.state()
    program: Any = session._engine.program("step")[0]
    program._session = Failing(program._session, error)
    with pytest.raises(ExecutionError, match=words):
        session.step(batch)
    for name, array in session.state().items():
        np.testing.assert_array_equal(array, before[name])


class OwnError(Exception):
    """Anything a callback may raise."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, OwnError, SystemExit])
def test_what_has_been_seen_is_not_lost_with_what_ends_the_training(
    session: TrainingSession, make_batches: Any, kind: type[BaseException]
) -> None:
    def end(_: TrainingSession, info: Any) -> None:
        if info.step == 3:
            raise kind

    with pytest.raises(kind) as caught:
        session.fit(make_batches(2, 2), epochs=2, progress=False, callbacks=[end])
    history: History = caught.value.history  # type: ignore[attr-defined]  # what this is about
    assert len(history.steps) == 3
    assert len(history.epochs) == 1
    with pytest.raises(BatchError) as refused:
        session.fit([*make_batches(2), {}], progress=False)
    assert len(refused.value.history.steps) == 1  # type: ignore[attr-defined]  # as above


def test_nothing_but_ours_is_written(packed: bytes, tmp_path: Any) -> None:
    (tmp_path / "linear.edgeopt").write_bytes(packed)
    code = """
        import numpy, edgeopt_runtime
        session = edgeopt_runtime.TrainingSession.load("linear.edgeopt")
        session._engine.inputs = tuple(
            edgeopt_runtime.manifest.InputSpec(s.name, s.kind, s.dtype, (s.name + "_a", s.name + "_b"))
            for s in session._engine.inputs
        )
        try:
            session.step((numpy.ones((2, 3), numpy.float32), numpy.ones((3, 2), numpy.float32)))
        except edgeopt_runtime.ExecutionError as error:
            print("failed", "target" in str(error) or "Sub" in str(error))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("failed")
    assert "onnxruntime" not in done.stderr
    assert "Non-zero status" not in done.stderr
