"""A bundle trains the same on every release of ONNX Runtime and numpy, with nothing else installed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edgeopt_runtime import TrainingSession

# Releases of ONNX Runtime sum in different orders.
close = partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-6)


def test_every_step_gives_the_metrics_of_the_newest_release(case: Any) -> None:
    session = case.session()
    for index, batch in enumerate(case.batches):
        expected = case.group(f"step.{index}.")
        metrics = session.step(batch)
        assert metrics.keys() == expected.keys()
        close([metrics[name] for name in expected], list(expected.values()))


def test_training_ends_at_the_parameters_of_the_newest_release(case: Any) -> None:
    session = case.session()
    for batch in case.batches:
        session.step(batch)
    expected = case.group("parameter.")
    parameters = session.parameters()
    assert parameters.keys() == expected.keys()
    for name, array in expected.items():
        close(parameters[name], array, err_msg=name)


def test_the_trained_model_evaluates_and_predicts(case: Any, tmp_path: Path) -> None:
    session = case.session()
    for batch in case.batches:
        session.step(batch)
    expected = case.group("evaluate.")
    metrics = session.evaluate(batch)
    close([metrics[name] for name in expected], list(expected.values()))
    close(session.predict(batch[0]), case.expected["predict"])


def test_accumulated_microbatches_equal_one_step(mlp_case: Any) -> None:
    # The other models cannot agree: batch statistics and dropout masks differ between a batch and its parts.
    whole, parts = mlp_case.session(), mlp_case.session()
    inputs, target = mlp_case.batches[0]
    whole.step((inputs, target))
    for rows in (slice(0, 1), slice(1, None)):
        parts.accumulate((inputs[rows], target[rows]))
    parts.apply()
    for name, array in whole.parameters().items():
        close(parts.parameters()[name], array, err_msg=name)


def test_a_saved_session_goes_on_bit_for_bit(case: Any, tmp_path: Path) -> None:
    straight, first = case.session(), case.session()
    for batch in case.batches[:3]:
        straight.step(batch)
        first.step(batch)
    first.save(tmp_path / "half.edgeopt")
    second = TrainingSession.load(tmp_path / "half.edgeopt", threads=1)
    for batch in case.batches[3:]:
        assert second.step(batch) == straight.step(batch)
    for name, array in straight.state().items():
        assert second.state()[name].tobytes() == array.tobytes(), name


def test_minimize_lowers_the_loss_over_all_batches_at_once(mlp_case: Any) -> None:
    session = mlp_case.session()
    before = session.evaluate(mlp_case.batches)["loss"]
    result = session.minimize(mlp_case.batches, max_iter=10)
    close(session.evaluate(mlp_case.batches)["loss"], result.loss)
    assert result.loss < 0.5 * before
