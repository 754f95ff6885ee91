"""Estimates of the diagonal of the Hessian, or of the Gauss-Newton matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.errors import SignatureError
from edgeopt.losses import CrossEntropy
from edgeopt.optimizers import Measurement, Rademacher
from edgeopt.tracing import Array, op
from edgeopt.training.graphs.noise import draw
from edgeopt.training.measurements.passes import Estimator, Passes
from edgeopt.training.updating.groups import Need

__all__ = ["GaussNewtonBartlettDiagonal", "Hutchinson"]


class Hutchinson(Estimator):
    """z ⊙ Hz with signs z."""

    def sums(self, passes: Passes, needs: Sequence[Need]) -> list[Array]:
        """Of each parameter."""
        names = [need.owner for need in needs]
        signs = {name: draw(Rademacher(), passes.builder.state(name)) for name in names}
        seeds: dict[ir.Value, Array] = {}
        for name in names:
            gradient = passes.gradients[name]
            seed = signs[name] * xp.astype(passes.scale, gradient.dtype)
            # Two parameters may have the very same gradient.
            seeds[gradient.value] = seeds[gradient.value] + seed if gradient.value in seeds else seed
        products = passes.backward(seeds, names)
        return [signs[name] * products[name] for name in names]

    def estimate(self, kind: Measurement, total: Array, weight: Array) -> Array:
        """The mean."""
        return total / xp.astype(weight, total.dtype)


class GaussNewtonBartlettDiagonal(Estimator):
    """Squares of the gradient by labels that the model draws itself."""

    def sums(self, passes: Passes, needs: Sequence[Need]) -> list[Array]:
        """Gradients of the sum of the sampled loss, by each parameter."""
        builder, term = passes.builder, passes.plan.objective.only("The optimizer's estimate of curvature")
        loss = term.loss
        if not isinstance(loss, CrossEntropy) or loss.weight is not None:
            raise SignatureError(
                "The optimizer's estimate of curvature draws labels from the model's softmax, so it needs the loss "
                f"CrossEntropy without class weights, not {loss!r}."
            )
        logits, target = builder.predictions[term.outputs[0]], builder.batch(term.inputs[0])
        with builder.tracer.scope("sampled_loss"):
            # The largest of the logits with Gumbel noise is a draw from their softmax.
            noise = -xp.log(-xp.log(op.RandomUniformLike(logits)))
            drawn = xp.argmax(xp.stop_gradient(logits) + noise, axis=loss.class_axis)
            labels = xp.where(xp.equal(target, np.int64(loss.ignore_index)), target, drawn)
            plain = CrossEntropy(ignore_index=loss.ignore_index, class_axis=loss.class_axis)
            total, _ = plain.terms(xp, logits, labels)
        names = [need.owner for need in needs]
        found = passes.backward({total.value: xp.ones_like(total)}, names)
        return [found[name] for name in names]

    def estimate(self, kind: Measurement, total: Array, weight: Array) -> Array:
        """The square of the mean, once for each label."""
        return total * total / xp.astype(weight, total.dtype)
