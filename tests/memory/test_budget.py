"""Exports that have to fit into a budget of memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgeopt
from edgeopt.errors import ConfigurationError, MemoryBudgetError

MIB = 2**20
BATCH = 160


class Block(torch.nn.Module):
    """A residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        return x + torch.tanh(self.conv(x))


def export(**settings: Any) -> edgeopt.Bundle:
    """A network that keeps many activations and has few parameters."""
    torch.manual_seed(0)
    blocks = [Block() for _ in range(12)]
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), *blocks, torch.nn.Flatten(), torch.nn.Linear(8 * 24 * 24, 4)
    )
    return edgeopt.export(
        model,
        torch.randn(BATCH, 3, 24, 24),
        loss="cross_entropy",
        optimizer="adamw:lr=1e-3",
        verbose=False,
        check=False,
        **settings,
    )


def chosen(bundle: edgeopt.Bundle) -> str:
    """What the export says that it chose."""
    (decision,) = (one for one in bundle.decisions if one.kind == "memory")
    return decision.text


def test_what_fits_stays_and_what_does_not_is_made_to_fit() -> None:
    plain = export().estimate(batch=BATCH).peak / MIB
    lean = export(recompute="auto").estimate(batch=BATCH).peak / MIB
    assert lean < 0.8 * plain
    assert chosen(export(memory_budget_mb=plain + 1)).endswith("as it is")
    assert 'recompute="auto"' in chosen(export(memory_budget_mb=(plain + lean) / 2))
    split = export(memory_budget_mb=0.75 * lean)
    assert f"of {BATCH} examples; call accumulate" in chosen(split)
    assert "memory" in {decision.kind for decision in split.manifest.decisions}


def test_the_budget_is_for_the_sizes_that_are_given() -> None:
    assert chosen(export(memory_budget_mb=200, memory_sizes={"batch": 4})).endswith("as it is")
    with pytest.raises(edgeopt.errors.SignatureError, match="no dimension 'sequence'"):
        export(memory_budget_mb=200, memory_sizes={"sequence": 4})


def test_what_does_not_fit_says_how_much_it_needs() -> None:
    with pytest.raises(
        MemoryBudgetError, match=rf"into 8 MiB.*microbatches of 1 of {BATCH}.*needs \d+ MiB: state"
    ) as caught:
        export(memory_budget_mb=8)
    fitting = export(memory_budget_mb=caught.value.needed_mib + 1)
    assert "microbatches of" in chosen(fitting)
    for wrong in (0, -1, "8", True, float("nan")):
        with pytest.raises(ConfigurationError, match="memory_budget_mb"):
            export(memory_budget_mb=wrong)


def test_parameters_are_frozen_only_where_that_is_allowed() -> None:
    wide = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8)))
    given: dict[str, Any] = {"loss": "cross_entropy", "optimizer": "adamw:lr=1e-3", "verbose": False, "check": False}
    tight: dict[str, Any] = {"memory_budget_mb": 48}
    with pytest.raises(MemoryBudgetError, match="freeze_to_fit"):
        edgeopt.export(wide, torch.zeros(4, 512), **given, **tight)
    bundle = edgeopt.export(wide, torch.zeros(4, 512), **given, **tight, freeze_to_fit=True)
    trained = [spec.name for spec in bundle.manifest.tensors if spec.trainable]
    assert f"the last {len(trained)} parameters train" in chosen(bundle)
    assert set(trained) < {name for name, _ in wide.named_parameters()}
    assert "7.weight" in trained
    assert "0.weight" not in trained


def test_microbatches_make_the_step_of_the_whole_batch(tmp_path: Path) -> None:
    split, whole = export(memory_budget_mb=100), export()
    x = np.random.default_rng(0).standard_normal((BATCH, 3, 24, 24)).astype(np.float32)
    y = np.arange(BATCH) % 4
    parts, at_once = split.session(threads=1), whole.session(threads=1)
    for start in range(0, BATCH, 16):
        parts.accumulate(x[start : start + 16], y[start : start + 16])
    parts.apply()
    at_once.step(x, y)
    for name, array in at_once.parameters().items():
        np.testing.assert_allclose(parts.parameters()[name], array, atol=2e-4)
