"""The page about optimizers is what its generator writes, and every rule says where it comes from.

The generator also records the graphs of the rules at some size, which are therefore tested here.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from edgeopt.optimizers import OPTIMIZERS, initial_state
from edgeopt.tracing.subgraphs import all_nodes

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("generate_optimizers", DOCS / "generate_optimizers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(generator):
    costs = json.loads((DOCS / "optimizers.json").read_text(encoding="utf-8"))
    assert generator.page(costs) == (DOCS / "optimizers.md").read_text(encoding="utf-8"), (
        "run docs/generate_optimizers.py"
    )


@pytest.mark.parametrize("cls", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_rule_has_equations_a_reference_and_its_slots(cls):
    assert "::\n\n" in cls.__doc__
    assert "Semantics" in cls.__doc__
    described = "".join(base.__doc__ for base in cls.__mro__[:-1])
    assert all(
        f"`{slot}`" in described or slot.startswith("momentum_buffer_")
        for slot in initial_state(cls(), np.zeros((4, 4)))
    )


@pytest.mark.parametrize("cls", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_graph_holds_no_constant_of_the_size_of_its_parameter(generator, cls):
    graph, _ = generator.trace(cls(), (500, 500))
    sizes = [node.attributes["value"].as_tensor().size for node in all_nodes(graph) if node.op_type == "Constant"]
    assert max(sizes, default=0) < 500 * 500 / 10
