"""All estimates of a step: which kinds there are, and how sums become what the rules are given."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from edgeopt import tracing as xp
from edgeopt.optimizers import (
    Curvature,
    GaussNewtonBartlett,
    GaussNewtonSketch,
    HutchinsonDiagonal,
    KroneckerFactor,
)
from edgeopt.tracing import Array, op
from edgeopt.training.builder import GraphBuilder
from edgeopt.training.curvature.diagonal import GaussNewtonBartlettDiagonal, Hutchinson
from edgeopt.training.curvature.layers import LayerMeans
from edgeopt.training.curvature.passes import Estimator, Passes
from edgeopt.training.curvature.sketch import Sketch
from edgeopt.training.groups import Need
from edgeopt.training.names import STEP
from edgeopt.training.plan import Plan

__all__ = ["accumulated_curvature", "curvature_estimates", "curvature_sums"]

_ESTIMATORS: dict[type[Curvature], Estimator] = {
    GaussNewtonBartlett: GaussNewtonBartlettDiagonal(),
    GaussNewtonSketch: Sketch(),
    HutchinsonDiagonal: Hutchinson(),
    KroneckerFactor: LayerMeans(),
}


def curvature_sums(passes: Passes) -> dict[str, Array]:
    """By key, the sums of this batch; zero at updates that do not need them.

    Raises:
        SignatureError: The loss or the model does not allow it.
        UnsupportedOperatorError: The model has operators without a second derivative.
    """
    wanted: dict[tuple[type[Curvature], int], list[Need]] = {}
    for need in passes.plan.curvatures():
        wanted.setdefault((type(need.kind), need.kind.every), []).append(need)
    results: dict[str, Array] = {}
    for (kind, every), needs in wanted.items():
        with passes.builder.tracer.scope("curvature"):
            sums = _ESTIMATORS[kind].sums(passes, needs)
            if every > 1:
                due = partial(_is_multiple, passes.builder.state(STEP), every)
                sums = passes.builder.only_if(due, sums)
        results.update({need.key: total for need, total in zip(needs, sums, strict=True)})
    return results


def _is_multiple(number: Array, of: int) -> Array:
    return xp.equal(op.Mod(number, np.int64(of)), np.int64(0))


def accumulated_curvature(builder: GraphBuilder, plan: Plan) -> dict[str, Array]:
    """By key, the sums over all microbatches, in the dtype of the parameters."""
    return {
        need.key: xp.astype(builder.state(need.key), builder.state(need.members[0]).dtype) for need in plan.curvatures()
    }


def curvature_estimates(plan: Plan, sums: Mapping[str, Array], weight: Array) -> dict[str, Array]:
    """By key, the estimates from the sums of a batch of this weight."""
    return {
        need.key: _ESTIMATORS[type(need.kind)].estimate(need.kind, sums[need.key], weight) for need in plan.curvatures()
    }
