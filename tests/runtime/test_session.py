from __future__ import annotations

import numpy as np
import pytest

from edgeopt_runtime import NonFiniteLossError, StateError, TrainingSession


def test_steps_follow_the_reference(session, reference, make_batches):
    for batch in make_batches(4, 7, 1, 4, 5):
        expected = reference.loss(**batch)
        reference = reference.step(**batch)
        metrics = session.step(batch)
        assert metrics == {"loss": pytest.approx(expected, rel=1e-5), "lr": 0.1}
        for name, array in session.state().items():
            np.testing.assert_allclose(array, reference.state[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_evaluate_and_predict_leave_the_state_alone(session, reference, make_batches):
    (batch,) = make_batches(6)
    before = session.state()
    assert session.evaluate(batch) == {"loss": pytest.approx(reference.loss(**batch), rel=1e-5)}
    np.testing.assert_allclose(session.predict(batch), reference.predict(batch["x"]), rtol=1e-5)
    for name, array in session.state().items():
        np.testing.assert_array_equal(array, before[name])


def test_every_graph_sees_what_the_others_did(session, reference, make_batches):
    first, second, third, probe = make_batches(4, 4, 4, 3)
    session.step(first)
    session.accumulate(second)
    session.apply()
    session.step(third)
    reference = reference.step(**first).step(**second).step(**third)
    np.testing.assert_allclose(session.predict(probe), reference.predict(probe["x"]), rtol=1e-5)
    assert session.evaluate(probe)["loss"] == pytest.approx(reference.loss(**probe), rel=1e-5)
    assert session.state()["step"] == 3
    assert session.state()["draws"] == 3


@pytest.mark.parametrize("sizes", [(8,), (3, 5), (1, 1, 6), (2, 2, 2, 2)])
def test_microbatches_add_up_to_one_batch(packed, make_batches, sizes):
    (whole,) = make_batches(8)
    cuts = np.cumsum(sizes)[:-1]
    parts = [
        dict(zip(whole, pieces, strict=True))
        for pieces in zip(*(np.split(a, cuts) for a in whole.values()), strict=True)
    ]
    one, many = TrainingSession.load(packed), TrainingSession.load(packed)
    for _ in range(3):
        one.step(whole)
        for part in parts:
            many.accumulate(part)
        assert many.apply() == {"lr": 0.1}
    for name, array in many.parameters().items():
        np.testing.assert_allclose(array, one.parameters()[name], rtol=2e-6, atol=1e-7)


def test_evaluation_does_not_depend_on_the_cut(session, make_batches):
    (whole,) = make_batches(10)
    together = session.evaluate(whole)["loss"]
    for cuts in ([3], [1, 2], [5, 5], [9]):
        parts = zip(*(np.split(array, cuts) for array in whole.values()), strict=True)
        assert session.evaluate(parts)["loss"] == pytest.approx(together, rel=1e-6)


def test_evaluating_only_empty_batches_gives_nan(session, make_batches):
    with pytest.warns(UserWarning, match="Nothing in the batches to evaluate counts"):
        assert np.isnan(session.evaluate(make_batches(0, 0))["loss"])


def test_predict_gives_arrays_of_its_own(session, make_batches):
    first, second = make_batches(2, 2)
    early = session.predict(first["x"])
    kept = early.copy()
    session.predict(second["x"])
    session.step(second)
    np.testing.assert_array_equal(early, kept)


def test_the_session_does_not_share_memory_with_the_bundle(contents, make_batches):
    before = {name: array.copy() for name, array in contents.state.items()}
    session = TrainingSession(contents)
    for batch in make_batches(4, 4):
        session.step(batch)
    for name, array in contents.state.items():
        np.testing.assert_array_equal(array, before[name])


def test_state_and_parameters_are_copies(session, make_batches):
    session.parameters()["weight"].fill(7)
    session.state()["bias"].fill(7)
    assert not np.any(session.parameters()["weight"] == 7)
    assert not np.any(session.state()["bias"] == 7)


def test_parameters_are_those_with_the_role(session):
    assert set(session.parameters()) == {"weight", "bias", "scale"}


def test_loaded_parameters_are_used_by_every_graph(session, make_batches):
    first, second = make_batches(4, 4)
    session.step(first)
    weight = np.full((3, 2), 0.5, np.float32)
    session.load_parameters({"weight": weight, "input_mean": np.ones(3, np.float32)})
    weight.fill(9)
    values = session.state()
    np.testing.assert_array_equal(values["weight"], np.full((3, 2), 0.5, np.float32))
    np.testing.assert_array_equal(values["input_mean"], np.ones(3, np.float32))
    expected = (second["x"] @ values["weight"] + values["bias"]) * values["scale"]
    np.testing.assert_allclose(session.predict(second), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("nothing", np.zeros(2, np.float32), "no parameter or buffer `nothing`"),
        ("optimizer.momentum.bias", np.zeros(2, np.float32), "no parameter or buffer"),
        ("weight", np.zeros((2, 3), np.float32), r"float32 of shape \[3, 2\]"),
        ("weight", np.zeros((3, 2)), "float64"),
    ],
)
def test_refused_parameters_change_nothing(session, name, array, words):
    before = session.state()
    with pytest.raises(StateError, match=words):
        session.load_parameters({"bias": np.ones(2, np.float32), name: array})
    np.testing.assert_array_equal(session.state()["bias"], before["bias"])


def _poisoned(batch):
    return {**batch, "x": np.where(batch["x"] == batch["x"].max(), np.float32("nan"), batch["x"])}


@pytest.mark.parametrize("call", ["step", "accumulate"])
def test_a_loss_that_is_not_finite_changes_nothing(packed, make_batches, call):
    first, second, third = make_batches(4, 4, 4)
    session, undisturbed = TrainingSession.load(packed), TrainingSession.load(packed)
    getattr(session, call)(first)
    before = session.state()
    with pytest.raises(NonFiniteLossError, match=r"`loss` of this .* is nan") as caught:
        getattr(session, call)(_poisoned(second))
    assert np.isnan(caught.value.metrics["loss"])
    for name, array in session.state().items():
        np.testing.assert_array_equal(array, before[name])
    for batch in (first, third):
        getattr(undisturbed, call)(batch)
    getattr(session, call)(third)
    for name, array in session.state().items():
        np.testing.assert_array_equal(array, undisturbed.state()[name])


def test_skip_reports_and_goes_on(packed, make_batches):
    first, second = make_batches(4, 4)
    session = TrainingSession.load(packed, on_nonfinite="skip")
    assert session.step(first)["skipped"] == 0.0
    before = session.state()
    metrics = session.step(_poisoned(second))
    assert metrics["skipped"] == 1.0
    assert np.isnan(metrics["loss"])
    for name, array in session.state().items():
        np.testing.assert_array_equal(array, before[name])
    session.accumulate(_poisoned(second))
    with pytest.raises(StateError, match="Nothing has been accumulated"):
        session.apply()


def test_ignore_takes_what_comes(packed, make_batches):
    session = TrainingSession.load(packed, on_nonfinite="ignore")
    metrics = session.step(_poisoned(make_batches(4)[0]))
    assert np.isnan(metrics["loss"])
    assert "skipped" not in metrics
    assert np.isnan(session.parameters()["weight"]).any()
    assert session.state()["step"] == 1


def test_apply_needs_something_accumulated(session, make_batches):
    with pytest.raises(StateError, match="call `accumulate` first"):
        session.apply()
    session.accumulate(make_batches(2)[0])
    session.apply()
    with pytest.raises(StateError, match="call `accumulate` first"):
        session.apply()


def test_the_signature_lists_model_inputs_first(session):
    assert [(spec.name, spec.kind, spec.dtype, spec.shape) for spec in session.signature] == [
        ("x", "model", "float32", ("batch", 3)),
        ("target", "loss", "float32", ("batch", 2)),
    ]


def test_the_seed_can_be_reset(session, make_batches):
    session.step(make_batches(2)[0])
    session.reset_seed(17)
    assert session.state()["seed"] == 17
    assert session.state()["draws"] == 0
    with pytest.raises(StateError, match="whole number"):
        session.reset_seed(2**63)


def test_unknown_policies_are_refused(packed):
    with pytest.raises(StateError, match="on_nonfinite"):
        TrainingSession.load(packed, on_nonfinite="retry")  # type: ignore[arg-type]  # wrong on purpose
