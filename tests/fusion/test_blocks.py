"""Updates in blocks are one chain: its body runs the blocks, its program the whole vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch

import edgeopt
from edgeopt.optimizers import SGD, AdamW, Lion, Optimizer
from edgeopt.training.updating.blocks import BLOCK_SIZE
from edgeopt_runtime.errors import NonFiniteLossError

INPUTS = 2 * BLOCK_SIZE // 256


RULES: list[Optimizer] = [AdamW(1e-2), SGD(1e-2, momentum=0.9), Lion(1e-3)]


@pytest.fixture(scope="module", params=RULES, ids=lambda rule: type(rule).__name__)
def bundle(request: pytest.FixtureRequest) -> edgeopt.Bundle:
    torch.manual_seed(0)
    model = torch.nn.Linear(INPUTS, 1280)
    return edgeopt.export(model, torch.randn(3, INPUTS), loss="mse", optimizer=request.param, verbose=False)


def functions_of(bundle: edgeopt.Bundle) -> dict[str, onnx.FunctionProto]:
    step = bundle.graphs["step.onnx"]
    assert isinstance(step, bytes)
    model = onnx.load_model_from_string(step)
    return {function.name: function for function in model.functions}


def test_the_body_has_the_blocks_and_the_program_whole_vectors(bundle: edgeopt.Bundle) -> None:
    functions = functions_of(bundle)
    chain = functions["Chain"]
    assert "Scan" in {node.op_type for node in chain.node}
    outer = next(function for name, function in functions.items() if name not in ("Chain", "ClipGrad"))
    assert "Scan" not in {node.op_type for node in outer.node}
    (call,) = [node for node in outer.node if node.op_type == "Chain"]
    (program,) = [attribute.ints for attribute in call.attribute if attribute.name == "program"]
    # One unit of the whole weight, and no more instructions than the rule has.
    assert INPUTS * 1280 in program
    assert len(program) < 400
    # Names stay those that surgery looks for.
    assert "updated.param.weight" in outer.output


def test_it_trains_and_keeps_what_is_finite(bundle: edgeopt.Bundle) -> None:
    session: Any = bundle.session()
    x = np.random.default_rng(0).standard_normal((3, INPUTS)).astype(np.float32)
    y = np.random.default_rng(1).standard_normal((3, 1280)).astype(np.float32)
    name = session.manifest.inputs[0].name
    losses = [session.step({name: x, "target": y})["loss"] for _ in range(4)]
    assert losses[-1] < losses[0]
    before = session.parameters()["weight"]
    # What is not finite is found within the blocks, too.
    with pytest.raises(NonFiniteLossError):
        session.step({name: np.full_like(x, np.inf), "target": y})
    np.testing.assert_array_equal(session.parameters()["weight"], before)


def test_parameters_of_float64_keep_their_blocks_and_get_no_program() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(INPUTS, 1280).double()
    x = torch.randn(3, INPUTS, dtype=torch.float64)
    bundle = edgeopt.export(model, x, loss="mse", optimizer=AdamW(1e-2), verbose=False)
    functions = functions_of(bundle)
    assert "Scan" in {node.op_type for node in functions["AdamW"].node}
    session: Any = bundle.session()
    target = np.zeros((3, 1280))
    losses = [session.step((x.numpy(), target))["loss"] for _ in range(3)]
    assert losses[-1] < losses[0]
