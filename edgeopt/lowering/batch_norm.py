"""Batch normalisation in training mode: its batch's statistics, then the inference-mode operator.

ONNX Runtime's training-mode kernel exists for float32 only and not on every provider. The statistics are the same
expressions as in the gradient rule, so both share them.
"""

from __future__ import annotations

import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.autodiff.arrays import reshape_like
from edgeopt.autodiff.rules.normalisation import batch_statistics
from edgeopt.errors import UnsupportedModelError
from edgeopt.lowering.registry import lowering
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


def _is_training(n: Site) -> bool:
    return bool(n.attr("training_mode", 0))


@lowering("BatchNormalization", when=_is_training)
def training_batch_normalization(n: Site) -> tuple[Array, Array, Array]:
    """Output, running mean and running variance (the population's, as ONNX has it): r·momentum + b·(1 - momentum).

    Of one value for each channel nothing can be learned: it is its own mean, and the output is the bias. PyTorch
    refuses such a batch. A graph cannot, but it can make the output NaN, so that the step is not taken.

    Raises:
        UnsupportedModelError: There can be no more than one.
    """
    epsilon, momentum = n.number("epsilon", 1e-5), n.number("momentum", 0.9)
    kept_mean, _, kept_variance, _ = batch_statistics(n.x, epsilon)
    if n.tracer.marks_operations:
        _let_others_read(n, kept_mean, kept_variance)
    mean, variance = reshape_like(kept_mean, n.input(3)), reshape_like(kept_variance, n.input(4))
    y = op.BatchNormalization(n.x, _unless_alone(n), n.input(2), mean, variance, epsilon=epsilon)
    running_mean = n.input(3) * momentum + mean * (1.0 - momentum)
    running_variance = n.input(4) * momentum + variance * (1.0 - momentum)
    return y, running_mean, running_variance


def _let_others_read(n: Site, mean: Array, variance: Array) -> None:
    """Replace the same statistics where a model computes them beside the operator, for running ones of its own.

    As plain nodes the equal expressions are merged in the end; what is marked as one operation equals nothing.
    """
    for average in _averages(n, n.x.value):
        for use in list(average.uses()):
            for square in [user.node for value in use.node.outputs for user in value.uses()]:
                is_square = square.op_type == "Mul" and square.inputs[0] is square.inputs[1]
                if use.node.op_type == "Sub" and use.node.inputs[0] is n.x.value and is_square:
                    for value in _averages(n, square.outputs[0]):
                        value.replace_all_uses_with(variance.value)
        average.replace_all_uses_with(mean.value)


def _averages(n: Site, value: ir.Value) -> list[ir.Value]:
    """The means of a tensor over all axes but that of the channels, which are kept."""
    axes = [0, *range(2, n.x.ndim)]
    found = []
    for use in value.uses():
        node = use.node
        if node.domain or node.op_type != "ReduceMean" or node.graph is not n.tracer.graph:
            continue
        reduced = node.inputs[1] if len(node.inputs) > 1 else None
        given = None if reduced is None else ir.convenience.get_const_tensor(reduced)
        kept = node.attributes.get_int("keepdims", 1)
        if kept and given is not None and sorted(given.numpy().reshape(-1).tolist()) == axes:
            found.append(node.outputs[0])
    return [output for output in found if not output.is_graph_output()]


def _unless_alone(n: Site) -> Array:
    """The scale, or NaN where a channel has one value."""
    scale, known = n.input(1), [dim for axis, dim in enumerate(n.x.shape) if axis != 1 and isinstance(dim, int)]
    if any(dim > 1 for dim in known):
        return scale
    if len(known) == n.x.ndim - 1:
        raise UnsupportedModelError(
            f"{n} normalises by the statistics of its batch, but has one value for each channel: its input has the "
            f"shape {list(n.x.shape)}. Export with several samples and a symbolic batch, or with the statistics frozen "
            "(evaluation mode of a module, batch_norm='frozen' of a file)."
        )
    others = xp.astype(op.Size(n.x) - op.Size(scale), scale.dtype)
    return scale * (others / others)
