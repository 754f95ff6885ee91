from __future__ import annotations

from typing import Any

import array_api_compat.numpy
import array_api_compat.torch
import pytest


@pytest.fixture(scope="session", params=[array_api_compat.numpy, array_api_compat.torch], ids=["numpy", "torch"])
def xp(request: pytest.FixtureRequest) -> Any:
    """The namespaces every array program must run under."""
    return request.param
