from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy

from edgeopt_runtime import TrainingSession

CONTINUE = """
import sys
import numpy as np
import safetensors.numpy
from edgeopt_runtime import TrainingSession

session = TrainingSession.load(sys.argv[1], threads=1)
batches = np.load(sys.argv[2])
for index in range(3):
    session.step((batches[f"x{index}"], batches[f"target{index}"]))
safetensors.numpy.save_file(session.state(), sys.argv[3])
"""


@pytest.mark.parametrize("name", ["half.edgeopt", "half"])
def test_a_new_process_goes_on_bit_for_bit(session, make_batches, tmp_path, name):
    batches = make_batches(4, 5, 6, 7, 8)
    session.set_hyper(lr=0.03, momentum=0.7)
    for batch in batches[:2]:
        session.step(batch)
    session.save(tmp_path / name)
    rest = {f"{key}{index}": array for index, batch in enumerate(batches[2:]) for key, array in batch.items()}
    np.savez(tmp_path / "batches.npz", **rest)
    arguments = [str(tmp_path / part) for part in (name, "batches.npz", "end.safetensors")]
    subprocess.run([sys.executable, "-c", CONTINUE, *arguments], check=True)
    for batch in batches[2:]:
        session.step(batch)
    end = safetensors.numpy.load_file(arguments[-1])
    assert end.keys() == session.state().keys()
    for key, array in session.state().items():
        assert array.tobytes() == end[key].tobytes(), key


def test_gradients_that_wait_for_their_update_are_saved_too(session, make_batches, tmp_path):
    first, second = make_batches(3, 5)
    session.accumulate(first)
    session.save(tmp_path / "half.edgeopt")
    resumed = TrainingSession.load(tmp_path / "half.edgeopt", threads=1)
    for each in (session, resumed):
        each.accumulate(second)
        each.apply()
    for key, array in session.state().items():
        assert array.tobytes() == resumed.state()[key].tobytes(), key
    session.save(tmp_path / "half.edgeopt")
    assert "accumulator.weight" not in TrainingSession.load(tmp_path / "half.edgeopt").state()


def test_saving_again_gives_the_same_bytes(session, make_batches, tmp_path):
    session.step(make_batches(4)[0])
    session.save(tmp_path / "a.edgeopt")
    TrainingSession.load(tmp_path / "a.edgeopt").save(tmp_path / "b.edgeopt")
    assert (tmp_path / "a.edgeopt").read_bytes() == (tmp_path / "b.edgeopt").read_bytes()


def test_saving_does_not_disturb_the_session(session, make_batches, tmp_path, packed):
    undisturbed = TrainingSession.load(packed, threads=1)
    for batch in make_batches(4, 4, 4):
        session.save(tmp_path / "a.edgeopt")
        session.step(batch)
        undisturbed.step(batch)
    for key, array in session.state().items():
        assert array.tobytes() == undisturbed.state()[key].tobytes(), key
