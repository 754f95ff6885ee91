"""All measurements of a step: which kinds there are, and how sums become what the rules are given."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from edgeopt import tracing as xp
from edgeopt.optimizers import (
    GaussNewtonBartlett,
    GaussNewtonSketch,
    HutchinsonDiagonal,
    KroneckerFactor,
    LossValue,
    Measurement,
)
from edgeopt.tracing import Array, op
from edgeopt.training.graphs.builder import GraphBuilder
from edgeopt.training.measurements.diagonal import GaussNewtonBartlettDiagonal, Hutchinson
from edgeopt.training.measurements.layers import LayerMeans
from edgeopt.training.measurements.loss import MeanLoss
from edgeopt.training.measurements.passes import Estimator, Passes
from edgeopt.training.measurements.sketch import Sketch
from edgeopt.training.names import STEP
from edgeopt.training.plan import Plan
from edgeopt.training.updating.groups import Need

__all__ = ["accumulated_sums", "measured", "measured_sums"]

_ESTIMATORS: dict[type[Measurement], Estimator] = {
    GaussNewtonBartlett: GaussNewtonBartlettDiagonal(),
    GaussNewtonSketch: Sketch(),
    HutchinsonDiagonal: Hutchinson(),
    KroneckerFactor: LayerMeans(),
    LossValue: MeanLoss(),
}


def measured_sums(passes: Passes) -> dict[str, Array]:
    """By key, the sums of this batch; zero at updates that do not need them.

    Raises:
        SignatureError: The loss or the model does not allow it.
        UnsupportedOperatorError: The model has operators without a second derivative.
    """
    wanted: dict[tuple[type[Measurement], int], list[Need]] = {}
    for need in passes.plan.measurements():
        wanted.setdefault((type(need.kind), need.kind.every), []).append(need)
    results: dict[str, Array] = {}
    for (kind, every), needs in wanted.items():
        with passes.builder.tracer.scope("measurements"):
            sums = _ESTIMATORS[kind].sums(passes, needs)
            if every > 1:
                due = partial(_is_multiple, passes.builder.state(STEP), every)
                sums = passes.builder.only_if(due, sums)
        results.update({need.key: total for need, total in zip(needs, sums, strict=True)})
    return results


def _is_multiple(number: Array, of: int) -> Array:
    return xp.equal(op.Mod(number, np.int64(of)), np.int64(0))


def accumulated_sums(builder: GraphBuilder, plan: Plan) -> dict[str, Array]:
    """By key, the sums over all microbatches."""
    return {need.key: builder.state(need.key) for need in plan.measurements()}


def measured(builder: GraphBuilder, plan: Plan, sums: Mapping[str, Array], weight: Array) -> dict[str, Array]:
    """By key, what comes of the sums of a batch of this weight, in the dtype of the parameters."""
    results = {}
    for need in plan.measurements():
        estimate = _ESTIMATORS[type(need.kind)].estimate(need.kind, sums[need.key], weight)
        results[need.key] = xp.astype(estimate, builder.state(need.members[0]).dtype)
    return results
