"""Curvature for update rules: further passes through the model within the graph that computes the gradient.

Each estimate is made from sums that add up over microbatches, so that `step` and `accumulate` share the passes and
`apply` needs no batch. The passes stand in the branch of an `If`, which runs only at the updates that need them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.autodiff import backward
from edgeopt.errors import SignatureError
from edgeopt.losses import CrossEntropy
from edgeopt.optimizers import Curvature, GaussNewtonBartlett, HutchinsonDiagonal, Rademacher
from edgeopt.tracing import Array, op
from edgeopt.training.builder import GraphBuilder
from edgeopt.training.names import STEP
from edgeopt.training.noise import draw
from edgeopt.training.plan import Plan
from edgeopt_runtime.manifest import InputSpec

__all__ = ["Passes", "curvature_estimates", "curvature_sums"]


@dataclass(frozen=True)
class Passes:
    """What the passes start from.

    Attributes:
        builder: The graph that holds forward and backward.
        plan: The settings.
        targets: The loss's inputs.
        gradients: The gradient of each trainable parameter.
        scale: What those gradients have to be multiplied by to be those of the loss sum.
    """

    builder: GraphBuilder
    plan: Plan
    targets: Sequence[InputSpec]
    gradients: Mapping[str, Array]
    scale: Array

    def backward(self, seeds: Mapping[ir.Value, Array], names: Sequence[str]) -> dict[str, Array]:
        """Cotangents of the parameters, zero where nothing depends on one."""
        parameters = [self.builder.state(name) for name in names]
        found = backward(self.builder.tracer, seeds, [array.value for array in parameters])
        return {
            name: xp.zeros_like(parameter) if cotangent is None else cotangent
            for name, parameter, cotangent in zip(names, parameters, found, strict=True)
        }


class _Estimator(ABC):
    """Sums over microbatches, and the estimate that they give."""

    @abstractmethod
    def sums(self, passes: Passes, names: Sequence[str]) -> dict[str, Array]:
        """One additive array for each of the parameters."""

    @abstractmethod
    def estimate(self, total: Array, weight: Array) -> Array:
        """The estimate from the sum over all microbatches and the weight of the loss."""


class _Hutchinson(_Estimator):
    def sums(self, passes: Passes, names: Sequence[str]) -> dict[str, Array]:
        signs = {name: draw(Rademacher(), passes.builder.state(name)) for name in names}
        seeds: dict[ir.Value, Array] = {}
        for name in names:
            gradient = passes.gradients[name]
            seed = signs[name] * xp.astype(passes.scale, gradient.dtype)
            # Two parameters may have the very same gradient.
            seeds[gradient.value] = seeds[gradient.value] + seed if gradient.value in seeds else seed
        return {name: signs[name] * product for name, product in passes.backward(seeds, names).items()}

    def estimate(self, total: Array, weight: Array) -> Array:
        return total / xp.astype(weight, total.dtype)


class _GaussNewtonBartlett(_Estimator):
    def sums(self, passes: Passes, names: Sequence[str]) -> dict[str, Array]:
        loss, builder = passes.plan.loss, passes.builder
        if not isinstance(loss, CrossEntropy) or loss.weight is not None:
            raise SignatureError(
                "The optimizer's estimate of curvature draws labels from the model's softmax, so it needs the loss "
                f"CrossEntropy without class weights, not {loss!r}."
            )
        logits, target = builder.predictions[passes.plan.output], builder.batch(passes.targets[0])
        with builder.tracer.scope("sampled_loss"):
            # The largest of the logits with Gumbel noise is a draw from their softmax.
            noise = -xp.log(-xp.log(op.RandomUniformLike(logits)))
            drawn = xp.argmax(xp.stop_gradient(logits) + noise, axis=loss.class_axis)
            labels = xp.where(xp.equal(target, np.int64(loss.ignore_index)), target, drawn)
            plain = CrossEntropy(ignore_index=loss.ignore_index, class_axis=loss.class_axis)
            total, _ = plain.terms(xp, logits, labels)
        return passes.backward({total.value: xp.ones_like(total)}, names)

    def estimate(self, total: Array, weight: Array) -> Array:
        return total * total / xp.astype(weight, total.dtype)


_ESTIMATORS: dict[type[Curvature], _Estimator] = {
    HutchinsonDiagonal: _Hutchinson(),
    GaussNewtonBartlett: _GaussNewtonBartlett(),
}


def curvature_sums(passes: Passes) -> dict[tuple[str, str], Array]:
    """By parameter and name, the sums of this batch; zero at updates that do not need them.

    Raises:
        SignatureError: The loss does not allow it.
        UnsupportedOperatorError: The model has operators without a second derivative.
    """
    wanted: dict[Curvature, dict[str, list[str]]] = {}
    for group in passes.plan.groups:
        for parameter, name, kind in group.curvatures():
            wanted.setdefault(kind, {}).setdefault(parameter, []).append(name)
    results: dict[tuple[str, str], Array] = {}
    for kind, places in wanted.items():
        with passes.builder.tracer.scope("curvature"):
            sums = _ESTIMATORS[type(kind)].sums(passes, list(places))
            if kind.every > 1:
                due = partial(_is_multiple, passes.builder.state(STEP), kind.every)
                sums = dict(zip(sums, passes.builder.only_if(due, list(sums.values())), strict=True))
        results.update({(parameter, name): sums[parameter] for parameter in places for name in places[parameter]})
    return results


def _is_multiple(number: Array, of: int) -> Array:
    return xp.equal(op.Mod(number, np.int64(of)), np.int64(0))


def curvature_estimates(
    plan: Plan, sums: Mapping[tuple[str, str], Array], weight: Array
) -> dict[tuple[str, str], Array]:
    """By parameter and name, the estimates from the sums of a batch of this weight."""
    kinds = {(parameter, name): kind for group in plan.groups for parameter, name, kind in group.curvatures()}
    return {key: _ESTIMATORS[type(kinds[key])].estimate(total, weight) for key, total in sums.items()}
