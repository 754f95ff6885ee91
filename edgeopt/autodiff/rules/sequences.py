"""Sequences: reversed ones have a rule, lists of tensors are gone from a canonical graph where they can be."""

from __future__ import annotations

from edgeopt.autodiff.registry import refuse, rule, zero_derivative
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


@rule("ReverseSequence")
def reverse_sequence(n: Site, g: Array) -> Array:
    """Reversed once more."""
    lengths = n.input(1)
    axes = {"batch_axis": n.attr("batch_axis", 1), "time_axis": n.attr("time_axis", 0)}
    return op.ReverseSequence(g, lengths, **axes).with_shape(n.x.shape)


refuse(
    "which tensors its sequence holds is only known at run time",
    "ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert",
    "SequenceMap", "SplitToSequence",
    alternative="give positions and sizes as constants, or write the loop as a Scan",
)  # fmt: skip
refuse(
    "whether it holds a tensor is only known at run time",
    "Optional", "OptionalGetElement",
    alternative="make the optional input a required one",
)  # fmt: skip
zero_derivative("a length, or whether there is anything", "OptionalHasElement", "SequenceLength")
