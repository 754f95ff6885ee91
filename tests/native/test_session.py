"""What a session makes of the library: it uses one that fits, and says why it does without another."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt_runtime import BundleContents, TrainingSession
from edgeopt_runtime.errors import ProviderError


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 3))
    path = tmp_path_factory.mktemp("native") / "mlp.edgeopt"
    edgeopt.export(
        model,
        torch.zeros(4, 20),
        loss=edgeopt.losses.CrossEntropy(),
        optimizer=edgeopt.optimizers.AdamW(lr=1e-2),
        transforms=[edgeopt.transforms.ClipByGlobalNorm(1.0)],
    ).save(path)
    return path


def losses(session: TrainingSession) -> list[float]:
    rng = np.random.default_rng(0)
    batches = [(rng.normal(size=(4, 20)).astype(np.float32), rng.integers(0, 3, 4)) for _ in range(20)]
    return [session.step(batch)["loss"] for batch in batches]


def test_the_library_is_taken_and_the_training_is_the_same(package: Path, bundle: Path) -> None:
    native, plain = TrainingSession.load(bundle), TrainingSession.load(bundle, kernels="plain")
    np.testing.assert_allclose(losses(native), losses(plain), rtol=1e-5)
    assert native.kernels.library is not None
    assert Path(native.kernels.library).parent == package
    assert set(native.kernels.native) == {"Chain", "Chain_2", "Chain_3", "ClipGrad"}
    assert set(native.kernels.plain) == {"AdamW", "ClipByGlobalNorm"}
    assert plain.kernels.library is None
    assert set(plain.kernels.plain.values()) == {'the session was loaded with kernels="plain"'}


def test_what_is_not_finite_leaves_the_state(package: Path, bundle: Path) -> None:
    session = TrainingSession.load(bundle, on_nonfinite="skip")
    before = {name: array.copy() for name, array in session.parameters().items()}
    assert session.step((np.full((4, 20), np.inf, np.float32), np.zeros(4, np.int64)))["skipped"] == 1.0
    for name, array in session.parameters().items():
        np.testing.assert_array_equal(array, before[name])


def test_an_absent_library_is_said_to_be_absent(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "edgeopt_native", None)
    kernels = TrainingSession.load(bundle).kernels
    assert kernels.library is None
    assert all("edgeopt_native" in reason or "not installed" in reason for reason in kernels.plain.values())


def test_a_library_that_does_not_fit_is_left_alone(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wrong = tmp_path / "libedgeopt_native.so"
    wrong.write_bytes(b"not a library")
    package = ModuleType("edgeopt_native")
    package.library_path = lambda: str(wrong)  # type: ignore[attr-defined]  # a module has what is put there
    package.operators = lambda: ("Chain",)  # type: ignore[attr-defined]  # as above
    monkeypatch.setitem(sys.modules, "edgeopt_native", package)
    session = TrainingSession.load(bundle)
    assert session.kernels.library is None
    for reason in session.kernels.plain.values():
        assert f"does not fit onnxruntime {onnxruntime.__version__}" in reason
    assert losses(session)[-1] > 0.0


def test_a_program_that_the_library_does_not_know_runs_as_its_body(package: Path, bundle: Path) -> None:
    contents = edgeopt.Bundle.load(bundle).contents()
    model = onnx.load_from_string(contents.graphs["step.onnx"])
    for function in model.functions:
        for node in function.node:
            for attribute in node.attribute:
                if attribute.name == "program":
                    attribute.ints[0] = 99
    later = BundleContents(
        contents.manifest, {**contents.graphs, "step.onnx": model.SerializeToString()}, contents.state
    )
    session, plain = TrainingSession.load(later), TrainingSession.load(bundle, kernels="plain")
    assert losses(session) == losses(plain)
    assert any("version 99" in reason for reason in session.kernels.plain.values())


def test_the_choice_is_one_of_two(bundle: Path) -> None:
    with pytest.raises(ProviderError, match='must be "auto" or "plain"'):
        TrainingSession.load(bundle, kernels="fast")  # type: ignore[arg-type]  # that is the point
