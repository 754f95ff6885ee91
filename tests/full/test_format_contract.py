"""Every rule with every storage format."""

from __future__ import annotations

import pytest

from tests.optimizers.conftest import ingredients, train, train_onnx  # noqa: F401  # fixtures are found by name
from tests.optimizers.format_contract import PAIRS_OF_ALL, check


@pytest.mark.parametrize(("name", "state"), PAIRS_OF_ALL)
def test_a_rule_keeps_the_contract_with_every_format(name, state, train, train_onnx):  # noqa: F811  # as above
    check(name, state, train, train_onnx)
