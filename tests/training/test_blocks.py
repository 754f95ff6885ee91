"""Large parameters updated block by block: the same bits as whole ones, and the same refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeopt import Bundle
from edgeopt.losses import MSE
from edgeopt.optimizers import LAMB, SGD, Adam, AdamW, Group, Lookahead, NAdam, OptimizerLike, Prodigy, RMSprop
from edgeopt.tracing import Tracer, new_graph
from edgeopt.training import compose
from edgeopt.training.updating.blocks import block_of
from edgeopt.transforms import ClipByGlobalNorm
from edgeopt_runtime import NonFiniteLossError

rng = np.random.default_rng(0)
WEIGHTS = {
    "first.weight": rng.normal(size=(4, 60)).astype(np.float32),
    "first.bias": rng.normal(size=60).astype(np.float32),
    "last.weight": rng.normal(size=(60, 14)).astype(np.float32),
}
BATCHES = [
    {"x": rng.normal(size=(5, 4)).astype(np.float32), "target": rng.normal(size=(5, 14)).astype(np.float32)}
    for _ in range(4)
]

OPTIMIZERS: dict[str, OptimizerLike] = {
    "adamw": AdamW(0.01),
    "a slot that begins infinite": Adam(0.01, amsgrad=True, maximize=True),
    "no slots": SGD(0.01),
    "scalar slots": NAdam(0.01),
    "centred": RMSprop(0.01, centered=True, momentum=0.5),
    "groups": [Group("first.*", lr_multiplier=0.5), AdamW(0.01)],
}


def network(p):
    return (p["x"] @ p["first.weight"] + p["first.bias"]) @ p["last.weight"]


@pytest.fixture(scope="module")
def export(forward_model) -> Callable[..., Bundle]:
    def make(optimizer: OptimizerLike, block_size: int, **settings: Any) -> Bundle:
        model = forward_model(network, WEIGHTS, ("batch", 4))
        return Bundle.of(
            compose(model, loss=MSE(), optimizer=optimizer, joined_size=0, block_size=block_size, **settings)
        )

    return make


def scans(bundle: Bundle) -> int:
    """How many parameters the functions of the step update in blocks."""
    graph = bundle.graphs["step.onnx"]
    assert isinstance(graph, bytes)
    functions = onnx.load_from_string(graph).functions
    return sum(node.op_type == "Scan" for function in functions for node in function.node)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("transforms", [(), (ClipByGlobalNorm(0.5),)], ids=["plain", "clipped"])
def test_blocks_give_the_bits_of_whole_parameters(export, optimizer, transforms):
    whole, blocks = (export(optimizer, size, transforms=transforms) for size in (0, 20))
    assert (scans(whole), scans(blocks)) == (0, 2)
    sessions = [bundle.session() for bundle in (whole, blocks)]
    for batch in BATCHES[:2]:
        for session in sessions:
            session.step(batch)
    for batch in BATCHES[2:]:
        for session in sessions:
            session.accumulate(batch)
    for session in sessions:
        session.apply()
    expected, found = (session.state() for session in sessions)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert found[name].shape == value.shape
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("optimizer", [LAMB(0.01), Prodigy(), Lookahead(Adam(0.01)), AdamW(0.01, cautious=True)])
def test_what_is_not_elementwise_stays_whole(export, optimizer):
    assert scans(export(optimizer, 20)) == 0


def test_what_a_block_writes_is_checked(export):
    session = export(AdamW(0.01), 20).session()
    before = session.parameters()
    poisoned = {**BATCHES[0], "x": np.full((5, 4), 1e25, np.float32)}
    with pytest.raises(NonFiniteLossError):
        session.step(poisoned)
    for name, value in session.parameters().items():
        np.testing.assert_array_equal(value, before[name])


def test_another_optimizer_takes_over(export):
    """Of a bundle whose graphs write blocks, one that writes whole parameters."""
    found, expected = (export(AdamW(0.01), size).with_optimizer(LAMB(0.01)).bundle.session() for size in (20, 0))
    for batch in BATCHES:
        assert found.step(batch) == expected.step(batch)


@given(st.integers(1, 5000), st.integers(1, 64))
def test_blocks_divide_the_parameter(count, size):
    param = Tracer(new_graph("g")).input("p", np.float32, (count,))
    block = block_of(AdamW(0.01), param, {}, size)
    if block:
        assert count % block == 0
        assert size / 2 <= block <= 2 * size
        assert count // block > 1
