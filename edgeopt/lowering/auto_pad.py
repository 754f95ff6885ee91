"""SAME padding with strides larger than the window: ONNX Runtime 1.17 pads by a negative number, later ones by none."""

from __future__ import annotations

from edgeopt.autodiff.site import Site
from edgeopt.autodiff.windows import Window, window_of
from edgeopt.lowering.registry import lowering
from edgeopt.tracing import Array
from edgeopt.tracing.shapes import is_static


def _window(n: Site) -> Window | None:
    if n.attr("auto_pad", "NOTSET") not in ("SAME_LOWER", "SAME_UPPER"):
        return None
    kernel = n.input(1).shape[2:] if n.node.op_type == "Conv" else tuple(n.attr("kernel_shape"))
    return window_of(n, [int(size or 0) for size in kernel]) if is_static(kernel) else None


def _skips(n: Site) -> bool:
    window = _window(n)
    return window is not None and any(s > extent for s, extent in zip(window.strides, window.extents, strict=True))


@lowering("AveragePool", "Conv", "MaxPool", when=_skips)
def explicit_padding(n: Site) -> tuple[Array, ...]:
    """The padding in numbers."""
    window = _window(n)
    if window is None:
        raise LookupError(f"The padding of {n} is not known.")
    attributes = {name: attribute.value for name, attribute in n.node.attributes.items()}
    attributes.pop("auto_pad")
    attributes["pads"] = [*window.begin, *window.end]
    return n.tracer.emit(n.node.op_type, *n.inputs, outputs=len(n.node.outputs), **attributes)
