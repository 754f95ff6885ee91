"""Nothing that is not finite becomes the state, on every release of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeopt_runtime import NonFiniteLossError, TrainingSession


@pytest.fixture
def load(bundles: Path) -> Any:
    return lambda **options: TrainingSession.load(bundles / "length.edgeopt", threads=1, **options)


GOOD = np.ones((2, 64), np.float32), np.ones(2, np.float32)
BAD = np.concatenate([np.zeros((1, 64), np.float32), GOOD[0][:1]]), GOOD[1]


def test_a_gradient_that_is_not_finite_is_refused_though_the_loss_is(load: Any) -> None:
    session = load()
    before = session.state()
    with pytest.raises(NonFiniteLossError, match="this step would make the parameter `weight` NaN"):
        session.step(BAD)
    with pytest.raises(NonFiniteLossError, match="this accumulate would make the gradient of `weight` NaN"):
        session.accumulate(BAD)
    for name, array in session.state().items():
        assert array.tobytes() == before[name].tobytes(), name
    session.accumulate(GOOD)
    session.apply()


def test_an_optimizer_state_that_overflows_is_refused(load: Any) -> None:
    # The root of an infinite square is infinite on new releases, and NaN on ONNX Runtime 1.17.
    with pytest.raises(NonFiniteLossError, match="The loss is finite, but this step would make"):
        load().step((GOOD[0] * np.float32(1e15), GOOD[1]))


def test_skipped_batches_leave_no_trace(load: Any) -> None:
    session, undisturbed = load(on_nonfinite="skip"), load()
    history = session.fit([GOOD, BAD, GOOD], progress=False)
    expected = undisturbed.fit([GOOD, GOOD], progress=False)
    assert history.epochs == [{**expected.epochs[0], "skipped": 1.0}]
    for name, array in undisturbed.state().items():
        assert session.state()[name].tobytes() == array.tobytes(), name
