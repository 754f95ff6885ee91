"""Slopes and Gauss-Newton curvature along directions, in forward mode."""

from __future__ import annotations

from collections.abc import Sequence

from edgeopt import tracing as xp
from edgeopt.autodiff import Linearization, backward
from edgeopt.optimizers import GaussNewtonSketch, Measurement
from edgeopt.tracing import Array
from edgeopt.training.measurements.passes import Estimator, Passes
from edgeopt.training.names import measurement_name
from edgeopt.training.updating.groups import Need

__all__ = ["Sketch"]


class Sketch(Estimator):
    """One derivative of the model's output for each direction, one after the other; see `GaussNewtonSketch`."""

    def sums(self, passes: Passes, needs: Sequence[Need]) -> list[Array]:
        """Of the loss sum."""
        return [self._sketch(passes, need) for need in needs]

    def _sketch(self, passes: Passes, need: Need) -> Array:
        kind = need.kind
        if not isinstance(kind, GaussNewtonSketch):
            raise TypeError(f"{kind!r} is no sketch")
        tracer = passes.builder.tracer
        output = passes.builder.predictions[passes.plan.objective.only("The optimizer's sketch").outputs[0]]
        model = Linearization(tracer, output, [passes.builder.state(name) for name in need.members])
        (slope,) = backward(tracer, {passes.total.value: xp.ones_like(passes.total)}, [output.value])
        slope = xp.zeros_like(output) if slope is None else slope
        loss = Linearization(tracer, slope, [output])

        def along(_: Sequence[Array], directions: Sequence[Array]) -> tuple[list[Array], list[Array]]:
            inner = directions[0].tracer
            answer = model(inner, directions)
            # The Hessian is symmetric, so that its Jacobian is itself.
            return [], [answer, loss(inner, [answer])]

        tangents = [passes.tangents[measurement_name(kind.tangents, name)] for name in need.members]
        _, (answers, bent) = xp.scan(along, [], tangents)
        flat: Array = xp.reshape(answers, [kind.count, -1])
        columns = [xp.reshape(bent, [kind.count, -1]), xp.reshape(slope, [1, -1])]
        both: Array = xp.permute_dims(xp.concat(columns, axis=0), (1, 0))
        return flat @ both

    def estimate(self, kind: Measurement, total: Array, weight: Array) -> Array:
        """Of the mean loss."""
        return total / xp.astype(weight, total.dtype)
