"""Pooling with `ceil_mode` whose last window would begin in the padding behind.

Such windows do not count. ONNX Runtime before 1.18 counts them, and fills their outputs with the lowest number or 0.
With padding that ends where the last window ends there is nothing to round.
"""

from __future__ import annotations

from edgeopt.autodiff.site import Site
from edgeopt.autodiff.windows import pad, pooling_ends, window_of
from edgeopt.lowering.registry import lowering
from edgeopt.tracing import Array
from edgeopt.tracing.shapes import is_static


def _drops_windows(n: Site) -> bool:
    if not n.attr("ceil_mode", 0) or not is_static(n.x.shape[2:]):
        return False
    window = window_of(n, tuple(n.attr("kernel_shape")))
    if window is None:
        return False
    # Windows that count reach to the end of the padding, or beyond it.
    return any(end < declared for end, declared in zip(pooling_ends(n, window), window.end, strict=True))


@lowering("AveragePool", "MaxPool", when=_drops_windows)
def pooling_without_late_windows(n: Site) -> tuple[Array, ...]:
    """The padding behind ends with the last window; where that is inside the input, the input is cut."""
    window = window_of(n, tuple(n.attr("kernel_shape")))
    if window is None:
        raise LookupError(f"The padding of {n} is not known.")
    ends = pooling_ends(n, window)
    x = pad(n.x, [0] * len(ends), [min(end, 0) for end in ends])
    attributes = {name: attribute.value for name, attribute in n.node.attributes.items()}
    attributes.pop("auto_pad", None)
    attributes.update(ceil_mode=0, pads=[*window.begin, *(max(end, 0) for end in ends)])
    return n.tracer.emit(n.node.op_type, x, outputs=len(n.node.outputs), **attributes)
