from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from edgeopt_runtime import TrainingSession


def test_calls_from_several_threads_are_carried_out_one_after_the_other(packed, make_batches, tmp_path):
    session = TrainingSession.load(packed, threads=1)
    (batch,) = make_batches(4)
    probe = np.eye(3, dtype=np.float32)

    def work(index: int):
        for _ in range(20):
            session.step(batch)
        session.save(tmp_path / f"{index}.edgeopt")
        return session.predict(probe), session.state()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    other = TrainingSession.load(packed, threads=1)
    for _ in range(80):
        other.step(batch)
    for name, array in session.state().items():
        assert array.tobytes() == other.state()[name].tobytes(), name
    for index in range(4):
        # Saved in the middle of other threads' steps, and yet the state after some whole step.
        state = TrainingSession.load(tmp_path / f"{index}.edgeopt").state()
        assert state["step"] == state["draws"]
