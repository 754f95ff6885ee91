"""Loops over the first axis of arrays, as one Scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgeopt.tracing.array import Array

__all__ = ["scan"]

_Arrays = Sequence[Array]


def scan(
    step: Callable[[_Arrays, _Arrays], tuple[_Arrays, _Arrays]],
    initial: _Arrays,
    sequences: _Arrays,
    *,
    backwards: bool = False,
) -> tuple[list[Array], list[Array]]:
    """Run a step over the first axis of some arrays, carrying others.

    Args:
        step: From carried arrays and one slice of each sequence to the next carried arrays and what is to be stacked.
            It may use any array of the graph besides.
        initial: What is carried first; the step keeps types and shapes.
        sequences: Arrays of one length, at least one of them.
        backwards: Begin with the last slice. What is stacked has the place of the slice that it was computed from.

    Returns:
        What is carried last, and the stacked arrays.
    """
    tracer = sequences[0].tracer
    inner = tracer.subgraph("step")
    carried = [inner.argument("carried", array.dtype, array.shape) for array in initial]
    slices = [inner.argument("slice", array.dtype, array.shape[1:]) for array in sequences]
    following, stacked = step(carried, slices)
    for array in (*following, *stacked):
        inner.result(array)
    for declared, array in zip(inner.graph.outputs, initial, strict=False):
        declared.shape = array.value.shape
    results = tracer.emit(
        "Scan",
        *initial,
        *sequences,
        outputs=len(initial) + len(stacked),
        body=inner.graph,
        num_scan_inputs=len(sequences),
        scan_input_directions=[1] * len(sequences) if backwards else None,
        scan_output_directions=[1] * len(stacked) if backwards and stacked else None,
    )
    return list(results[: len(initial)]), list(results[len(initial) :])
