from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import array_api_compat.numpy
import numpy as np
import pytest

from edgeopt.metrics import Metric


@pytest.fixture(scope="session")
def measured() -> Callable[..., Any]:
    """The metric of some rows, cut into batches anywhere: sums of batches, added up in float64 as a session does."""

    def measure(metric: Metric, *arrays: Any, cuts: tuple[int, ...] = (), xp: Any = array_api_compat.numpy) -> Any:
        rows = len(arrays[0])
        ends = [0, *sorted(cut % (rows + 1) for cut in cuts), rows]
        totals: dict[str, Any] = {}
        for start, stop in itertools.pairwise(ends):
            if start < stop:
                for name, value in metric.sums(xp, *(xp.asarray(array[start:stop]) for array in arrays)).items():
                    totals[name] = totals.get(name, 0.0) + np.asarray(value, np.float64)
        with np.errstate(all="ignore"):
            return metric.value(xp, {name: xp.asarray(value) for name, value in totals.items()})

    return measure
