"""Every rule with a storage format; `tests/full` has all pairs."""

from __future__ import annotations

import pytest

from tests.optimizers.format_contract import SAMPLE, check


@pytest.mark.parametrize(("name", "state"), SAMPLE)
def test_a_rule_keeps_the_contract_with_a_format(name, state, train, train_onnx):
    check(name, state, train, train_onnx)
