"""Every optimizer begins anew as if it were fresh; tests/training has one of each kind."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from edgeopt.optimizers import OPTIMIZERS

DAILY = runpy.run_path(str(Path(__file__).parents[1] / "training" / "test_beginning_anew.py"))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_begins_anew_as_if_it_were_fresh(name: str) -> None:
    DAILY["begins_anew"](name)
