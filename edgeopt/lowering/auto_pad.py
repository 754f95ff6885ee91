"""SAME padding with strides larger than the window: ONNX Runtime 1.17 pads by a negative number, later ones by none."""

from __future__ import annotations

import math

import numpy as np

from edgeopt.autodiff.windows import same_padding, window_of
from edgeopt.lowering.registry import lowering
from edgeopt.lowering.windows import average_pool
from edgeopt.tracing import Array, op
from edgeopt.tracing.shapes import is_static
from edgeopt.tracing.site import Site


def _kernel(n: Site) -> list[int]:
    kernel = n.input(1).shape[2:] if n.node.op_type == "Conv" else n.attr("kernel_shape")
    return [int(size or 0) for size in kernel]


def _skips(n: Site) -> bool:
    if n.attr("auto_pad", "NOTSET") not in ("SAME_LOWER", "SAME_UPPER"):
        return False
    if n.node.op_type == "Conv" and not is_static(n.input(1).shape[2:]):
        return False
    kernel = _kernel(n)
    strides, dilations = (n.attr(name, [1] * len(kernel)) for name in ("strides", "dilations"))
    return any(s > d * (k - 1) + 1 for k, s, d in zip(kernel, strides, dilations, strict=True))


@lowering("AveragePool", "Conv", "MaxPool", when=_skips)
def explicit_padding(n: Site) -> Array:
    """The padding in numbers where the size is known, else put around the input at run time."""
    window = window_of(n, _kernel(n))
    attributes = {name: attribute.value for name, attribute in n.node.attributes.items() if name != "auto_pad"}
    x = n.x
    if window is not None:
        attributes["pads"] = [*window.begin, *window.end]
    elif n.node.op_type == "AveragePool":
        # Padding that is there already would count.
        average: Array = average_pool(n)
        return average
    else:
        _, pads = same_padding(n, _kernel(n))
        x = op.Pad(x, pads, np.asarray(-math.inf if n.node.op_type == "MaxPool" else 0.0, x.dtype))
    result: Array = n.tracer.emit(n.node.op_type, x, *n.inputs[1:], **attributes)
    return result.with_shape(n.y.shape)
