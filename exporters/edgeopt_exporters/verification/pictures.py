"""A model that is given bytes, to compare an export with: the model itself, which gets them normalised."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from edgeopt.images import Images
from edgeopt_exporters.verification.reference import Arrays, Reference, Trained

__all__ = ["ImagesReference"]


class ImagesReference:
    """A reference one of whose inputs are bytes.

    Args:
        reference: The model.
        images: How they come.
        name: The input.
    """

    def __init__(self, reference: Reference, images: Images, name: str) -> None:
        self._inner, self._images, self._name = reference, images, name

    @property
    def sizes(self) -> Mapping[str, int]:
        """Those of the model."""
        return self._inner.sizes

    @property
    def state(self) -> Arrays:
        """That of the model."""
        return self._inner.state

    @property
    def asked(self) -> Collection[str]:
        """As for the model."""
        return self._inner.asked

    @property
    def epsilon(self) -> float:
        """As for the model."""
        return self._inner.epsilon

    def with_frozen(self, statistics: Collection[str]) -> ImagesReference:
        """The same with statistics that stay."""
        return ImagesReference(self._inner.with_frozen(statistics), self._images, self._name)

    def with_values(self, values: Arrays) -> ImagesReference:
        """The same with other weights."""
        return ImagesReference(self._inner.with_values(values), self._images, self._name)

    def inputs(self, sizes: Mapping[str, int]) -> Arrays:
        """The examples at other sizes, with random bytes in the place of pictures."""
        arrays = dict(self._inner.inputs(sizes))
        shape = arrays[self._name].shape
        if self._images.layout == "NHWC":
            shape = (shape[0], *shape[2:], shape[1])
        arrays[self._name] = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        return arrays

    def predict(self, inputs: Arrays, nudge: float = 0.0) -> Arrays:
        """Outputs in evaluation mode."""
        return self._inner.predict(self._decoded(inputs), nudge)

    def train(
        self,
        inputs: Arrays,
        cotangents: Callable[[Arrays], Arrays],
        wanted: Collection[str],
        nudge: float = 0.0,
        state: Collection[str] | None = None,
    ) -> Trained:
        """Forward and backward in training mode."""
        return self._inner.train(self._decoded(inputs), cotangents, wanted, nudge, state)

    def _decoded(self, inputs: Arrays) -> Arrays:
        pictures = inputs[self._name]
        if self._images.layout == "NHWC":
            pictures = pictures.transpose(0, 3, 1, 2)
        wanted = self._inner.inputs({})[self._name].dtype
        mean, std = (np.reshape(each, (-1, 1, 1)) for each in (self._images.mean, self._images.std))
        # In float64, and then rounded once.
        return {**inputs, self._name: ((pictures / 255.0 - mean) / std).astype(wanted)}
