"""Pictures as cameras and files have them: bytes, whose normalisation is part of the graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.arguments import Component
from edgeopt.canonical.copies import copied
from edgeopt.checks import number_or_tuple, require
from edgeopt.errors import SignatureError
from edgeopt.tracing import Array, Tracer
from edgeopt.training.forward import ForwardGraph, ForwardModel

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "Images", "with_images"]

#: Of the red, green and blue of ImageNet's pictures, between 0 and 1: what most pretrained models of torchvision want.
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Images(metaclass=Component):
    """An input of pictures in bytes, 0 to 255, from which the graphs make (x/255 - mean)/std.

    A batch of bytes is a quarter of the size of one of floats, and no device has to know the numbers.

    Attributes:
        mean: One number, or one for each channel, between 0 and 1.
        std: In the same way; with 1/255 as `std` the model gets 0 to 255, without both 0 to 1.
        layout: How batches come: `"NCHW"`, channels first as PyTorch has them, or `"NHWC"`, channels last as cameras,
            PIL and OpenCV do. The model's own input has its channels along axis 1.
        input: Its name; None for the only floating-point input with four axes.

    Raises:
        ConfigurationError: Another layout, a std that is not positive, or different numbers of channels.
    """

    mean: float | Sequence[float] = 0.0
    std: float | Sequence[float] = 1.0
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    input: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            object.__setattr__(self, name, number_or_tuple(name, getattr(self, name)))
        require(self.layout in ("NCHW", "NHWC"), f"layout must be 'NCHW' or 'NHWC', got {self.layout!r}")
        require(bool((np.asarray(self.std) > 0).all()), f"std must be positive, got {self.std!r}")
        lengths = {len(each) for each in (self.mean, self.std) if isinstance(each, tuple)}
        require(len(lengths) < 2, f"mean and std must have as many channels, got {self.mean!r} and {self.std!r}")

    def find(self, model: ForwardModel) -> str:
        """The name of the input.

        Raises:
            SignatureError: There is none such, or several, or it has another number of channels.
        """
        specs = model.train.specs(model.train.inputs)
        if self.input is not None and self.input not in specs:
            raise SignatureError(f"Images are for the input {self.input!r}, and the model has {list(specs)}.")
        fitting = [
            name
            for name, spec in specs.items()
            if len(spec.shape) == 4 and spec.dtype.startswith("float") and self.input in (None, name)
        ]
        if len(fitting) != 1:
            shapes = ", ".join(f"{name} {spec.dtype} {list(spec.shape)}" for name, spec in specs.items())
            raise SignatureError(
                f"Images are for one floating-point input of (batch, channels, height, width), and {len(fitting)} of "
                f"the model's are: {shapes}. Name it: Images(..., input='...')."
            )
        channels = specs[fitting[0]].shape[1]
        for name in ("mean", "std"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != channels:
                raise SignatureError(f"{fitting[0]!r} has {channels} channels, but {name} has {len(value)} numbers.")
        return fitting[0]

    def normalised(self, pictures: Array) -> Array:
        """What the model gets of bytes that were converted to its type, channels along axis 1."""
        mean, std = (np.asarray(each, np.float64).reshape(-1, 1, 1) for each in (self.mean, self.std))
        factor, offset = 1.0 / (255.0 * std), -mean / std
        result: Array = pictures * xp.asarray(factor, dtype=pictures.dtype) + xp.asarray(offset, dtype=pictures.dtype)
        return result


def with_images(model: ForwardModel, images: Images) -> ForwardModel:
    """The model with bytes for an input; before adapters are put into it.

    Raises:
        SignatureError: See `Images.find`.
    """
    name = images.find(model)
    return replace(
        model,
        train=_rewritten(model.train, name, images),
        evaluate=_rewritten(model.evaluate, name, images),
    )


def _rewritten(graph: ForwardGraph, name: str, images: Images) -> ForwardGraph:
    copy = copied(graph.model)
    inputs = copy.graph.inputs
    position, old = next((place, value) for place, value in enumerate(inputs) if value.name == name)
    readers = list(old.uses())
    dims = list(old.shape or ())
    order = dims if images.layout == "NCHW" else [dims[0], dims[2], dims[3], dims[1]]
    old.name = f"{name}/normalised"
    bytes_in = ir.Value(name=name, type=ir.TensorType(ir.DataType.UINT8), shape=ir.Shape(order))
    inputs[position] = bytes_in
    tracer = Tracer(copy.graph)
    with tracer.scope(f"{name}/images"):
        pictures = tracer.wrap(bytes_in)
        if images.layout == "NHWC":
            pictures = xp.permute_dims(pictures, (0, 3, 1, 2))
        found = images.normalised(xp.astype(pictures, np.dtype(old.dtype.numpy() if old.dtype else np.float32)))
    for node, place in readers:
        node.replace_input_with(place, found.value)
    for place, value in enumerate(copy.graph.outputs):
        if value is old:
            copy.graph.outputs[place] = found.value
    copy.graph.sort()
    return replace(graph, model=copy)
