"""A layer in a graph, as the arithmetic of an adapter sees it: arrays in and out, whatever the operator."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeopt import tracing as xp
from edgeopt.adapters.layers import Layer, Use
from edgeopt.array_types import Namespace
from edgeopt.tracing import Array, Tracer, op

__all__ = ["Place", "reordered"]


class Place:
    """One operator that reads the weight of a layer.

    Args:
        tracer: Records behind it.
        layer: The layer.
        use: The operator.
        training: Whether dropout drops.
    """

    def __init__(self, tracer: Tracer, layer: Layer, use: Use, *, training: bool) -> None:
        self.layer = layer
        self._tracer, self._use, self._training = tracer, use, training

    @property
    def data(self) -> Array:
        """What goes into the layer: features in the last axis, or channels in the second, or indices."""
        return self._input(self._use.data)

    @property
    def result(self) -> Array:
        """What comes out of it, with the bias."""
        return self._tracer.wrap(self._use.result)

    @property
    def weight(self) -> Array:
        """The weight itself, (out, in, *kernel)."""
        source = self._tracer.wrap(self._use.source)
        return reordered(xp, source, self._use.order)

    def constant(self, value: NDArray[Any]) -> Array:
        """Numbers that do not train, as an array of the graph."""
        return self._tracer.constant(value)

    def drops(self, ratio: float) -> bool:
        """Whether `dropout` does anything: in training, to what is no index."""
        return ratio > 0.0 and self._training and self.layer.kind != "embedding"

    def dropout(self, ratio: float) -> Array:
        """What goes into the layer, with some of it dropped in training. Indices stay."""
        if not self.drops(ratio):
            return self.data
        dropped: Array = self._tracer.emit("Dropout", self.data, np.float32(ratio), np.bool_(True))
        return dropped

    @property
    def without_bias(self) -> Array:
        """What comes out of it before the bias is added."""
        bias = self.bias()
        if bias is None or self._use.sum is not None:
            return self._tracer.wrap(self._use.node.outputs[0])
        return self.result - self.across(bias)

    def product(self, data: Array) -> Array:
        """The layer's own product of other data with its weight, without the bias."""
        node = self._use.node
        operands = [self._tracer.wrap(value) for value in node.inputs[:2] if value is not None]
        operands[self._use.data] = data
        attributes = {name: each.value for name, each in node.attributes.items() if name != "beta"}
        product: Array = self._tracer.emit(node.op_type, *operands, **attributes)
        return product

    def through(self, data: Array, weight: Array) -> Array:
        """The layer's kind of map with another weight, (r, in, *kernel)."""
        if self.layer.kind == "convolution":
            attributes = {name: each.value for name, each in self._use.node.attributes.items()}
            return op.Conv(data, xp.astype(weight, data.dtype), **attributes)
        transposed = xp.permute_dims(weight, (1, 0))
        if self.layer.kind == "embedding":
            rows: Array = xp.take(transposed, data, axis=0)
            return xp.astype(rows, self.result.dtype)
        return self._scaled(xp.matmul(data, xp.astype(transposed, data.dtype)))

    def rows(self, weight: Array, rows: NDArray[np.int64]) -> Array:
        """Some of the features that come out, without the bias, by rows of a weight of their own."""
        if self.layer.groups == 1:
            return self.through(self.data, weight)
        # Each channel by itself.
        attributes = {name: each.value for name, each in self._use.node.attributes.items()}
        channels = xp.take(self.data, rows, axis=1)
        return op.Conv(channels, xp.astype(weight, self.data.dtype), **{**attributes, "group": len(rows)})

    def mix(self, data: Array, weight: Array) -> Array:
        """A map of the features alone, (out, r), to what comes out of the layer."""
        weight = xp.astype(weight, data.dtype)
        if self.layer.kind != "convolution":
            product: Array = xp.matmul(data, xp.permute_dims(weight, (1, 0)))
            return product
        kernel = [1] * (len(self.layer.shape) - 2)
        return op.Conv(data, xp.reshape(weight, [self.layer.features_out, -1, *kernel]), group=self.layer.groups)

    def across(self, vector: Array) -> Array:
        """A vector with an element for each feature that comes out, so that it multiplies results."""
        vector = xp.astype(xp.reshape(vector, [-1]), self.result.dtype)
        return self._along(vector)

    def across_data(self, vector: Array) -> Array:
        """A vector with an element for each feature that goes in, so that it multiplies data."""
        return self._along(xp.astype(xp.reshape(vector, [-1]), self.data.dtype))

    def pick(self, data: Array, indices: NDArray[np.int64]) -> Array:
        """Some of the features of a result, in another order."""
        picked: Array = xp.take(data, indices, axis=self.axis)
        return picked

    @property
    def axis(self) -> int:
        """The axis of the features in results."""
        return 1 if self.layer.kind == "convolution" else len(self.result.shape) - 1

    def bias(self) -> Array | None:
        """What the layer adds to its product."""
        return None if self._use.bias is None else self._tracer.wrap(self._use.bias)

    def _along(self, vector: Array) -> Array:
        if self.layer.kind != "convolution":
            return vector
        shaped: Array = xp.reshape(vector, [1, -1, *[1] * (len(self.layer.shape) - 2)])
        return shaped

    def _scaled(self, product: Array) -> Array:
        """A Gemm may have a factor of its own."""
        factor = self._use.node.attributes.get_float("alpha", 1.0) if self._use.node.op_type == "Gemm" else 1.0
        return product if factor == 1.0 else product * float(factor or 1.0)

    def _input(self, position: int) -> Array:
        value = self._use.node.inputs[position]
        if value is None:
            raise ValueError(f"{self._use.node.name!r} reads nothing there")
        return self._tracer.wrap(value)


def reordered(namespace: Namespace, weight: Array, order: tuple[int, ...]) -> Array:
    """A weight with its axes in another order; the same object where that is theirs."""
    changed: Array = weight if order == tuple(range(len(order))) else namespace.permute_dims(weight, order)
    return changed
