"""The tensors of a session: who owns their memory, and who may write to it."""

from __future__ import annotations

import numpy as np

from edgeopt_runtime import TrainingSession


def test_nothing_takes_memory_before_it_is_needed(packed):
    state = TrainingSession.load(packed)._engine.state
    accumulators = [name for name, spec in state.specs.items() if spec.role == "accumulator"]
    assert accumulators
    assert not any(key[0] in accumulators for key in state._buffers)


def test_what_a_file_holds_is_read_where_it_lies_and_copied_before_it_is_changed(packed):
    state = TrainingSession.load(packed)._engine.state
    first = state.current("weight")
    assert not first.flags.writeable
    assert not first.flags.owndata
    copy = state.writable("weight")
    copy += 1
    np.testing.assert_array_equal(state.current("weight"), first + 1)


def test_arrays_of_the_user_are_copied(contents):
    mine = {name: np.array(array) for name, array in contents.state.items()}
    session = TrainingSession(type(contents)(contents.manifest, contents.graphs, mine))
    before = session.parameters()["weight"]
    mine["weight"] += 1
    np.testing.assert_array_equal(session.parameters()["weight"], before)


def test_a_change_between_steps_is_what_the_next_step_reads(packed, contents, make_batches):
    # The same from a file, whose bytes are shared at first, and from arrays, which are copied.
    mine = {name: np.array(array) for name, array in contents.state.items()}
    copied = TrainingSession(type(contents)(contents.manifest, contents.graphs, mine))
    shared = TrainingSession.load(packed)
    for index, batch in enumerate(make_batches(4, 5, 4, 6, 4)):
        for session in (copied, shared):
            session.load_parameters({"bias": np.full_like(session.parameters()["bias"], index / 8)})
            session.accumulate(batch)
        assert copied.evaluate(batch) == shared.evaluate(batch)
        assert copied.step(batch) == shared.step(batch)
        assert copied.apply() == shared.apply()
    for name, array in copied.state().items():
        np.testing.assert_array_equal(shared.state()[name], array)
