"""What enters and leaves the layers whose weights a rule preconditions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff import backward
from edgeopt.optimizers import KroneckerFactor, Measurement
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site
from edgeopt.training.measurements.passes import Estimator, Passes
from edgeopt.training.updating.groups import Need

__all__ = ["LayerMeans"]


class LayerMeans(Estimator):
    """See `KroneckerFactor`."""

    def sums(self, passes: Passes, needs: Sequence[Need]) -> list[Array]:
        """The sum over the rows, and the number of samples."""
        return [self._sum(passes, need) for need in needs]

    def _sum(self, passes: Passes, need: Need) -> Array:
        kind, layers = need.kind, passes.layers.of(need.owner)
        if not isinstance(kind, KroneckerFactor):
            raise TypeError(f"{kind!r} is no mean of a layer")
        dtype = passes.builder.state(need.owner).dtype
        zeros = passes.builder.tracer.constant(np.zeros(kind.size, dtype))
        if any(layer.inputs_first == (kind.side == "rows") for layer in layers):
            pairs = [_entering(layer.site, kind) for layer in layers]
            samples = xp.astype(sum((rows for _, rows in pairs[1:]), pairs[0][1]), dtype)
            sums = [xp.astype(total, dtype) for total, _ in pairs]
        else:
            # The loss weighs each sample once, however often the layer is used.
            samples = xp.astype(passes.weight, dtype)
            sums = [xp.astype(_leaving(passes, layer.site, kind), dtype) for layer in layers]
        both: Array = xp.concat([sum(sums, zeros), xp.reshape(samples, [1])], axis=0)
        return both

    def estimate(self, kind: Measurement, total: Array, weight: Array) -> Array:
        """The mean; zero where there were no samples."""
        last = int(total.shape[0] or 0) - 1
        count = op.Slice(total, [last], [last + 1], [0])
        return op.Slice(total, [0], [last], [0]) / xp.where(count > 0, count, xp.ones_like(count))


def _entering(site: Site, kind: KroneckerFactor) -> tuple[Array, Array]:
    """The sum over all rows of what the weight meets on one side, and the number of rows, an int64 scalar."""
    x = xp.stop_gradient(site.x)
    if site.node.op_type == "Gemm":
        x = x * site.number("alpha", 1.0)
    if kind.squared:
        x = x * x
    if site.node.op_type != "Conv":
        return xp.sum(xp.reshape(x, [-1, kind.size]), axis=0), op.Size(x) / np.int64(kind.size)
    # The gradient of a kernel is the sum over all patches, each times a cotangent: here a one, of one output a group.
    groups, shape = int(site.attr("group", 1)), site.y.shape
    kernel = op.Identity(site.tracer.constant(np.zeros((groups, *site.input(1).shape[1:]), x.dtype)))
    settings = {name: attribute.value for name, attribute in site.node.attributes.items()}
    y = op.Conv(x, kernel, **settings).with_shape((shape[0], groups, *shape[2:]))
    (patches,) = backward(site.tracer, {y.value: xp.ones_like(y)}, [kernel.value])
    if patches is None:
        raise TypeError(f"{site} has no gradient by its kernel")
    return xp.reshape(xp.sum(patches, axis=0), [-1]), op.Size(y)


def _leaving(passes: Passes, site: Site, kind: KroneckerFactor) -> Array:
    """The sum over all rows of the gradient that the loss sum has by what leaves the layer."""
    cotangent = passes.cotangents[site.y.value]
    cotangent = cotangent * xp.astype(passes.scale, cotangent.dtype)
    if kind.squared:
        cotangent = cotangent * cotangent
    if site.node.op_type == "Conv":
        return xp.sum(cotangent, axis=(0, *range(2, cotangent.ndim)))
    rows: Array = xp.reshape(cotangent, [-1, kind.size])
    return xp.sum(rows, axis=0)
