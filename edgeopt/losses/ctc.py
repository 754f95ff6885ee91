"""Connectionist temporal classification: labels in order, without saying when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import require
from edgeopt.control import loop
from edgeopt.errors import SignatureError
from edgeopt.losses.base import ArraySpec, Each, Expectation, Loss
from edgeopt.losses.numerics import logsumexp, preceding

__all__ = ["CTC"]

# The logarithm of no probability. Not -inf, whose differences are NaN, and far below the sum over any sequence.
_NEVER = -1e30


@dataclass(frozen=True)
class CTC(Loss):
    """Negative log-likelihood of a sequence of labels under all ways of stretching it over the time steps.

    Between labels there may be blanks, and between two equal ones there must be. Graves et al., ICML 2006, section 4.1,
    the forward variables of equations 6 and 7, in logarithms; the gradient is that of the recursion itself. Same values
    as `torch.nn.functional.ctc_loss`, whose mean divides each sequence's loss by its number of labels (1 if it has
    none) before averaging over the batch.

    The prediction holds scores of classes, which are normalised here (log-probabilities stay what they are), of shape
    (batch, time, classes), or with `time_first` (time, batch, classes). Batch inputs, all int64: `target`, labels of
    shape (batch, labels), filled up with anything; `input_lengths` and `target_lengths`, of shape (batch,), how many
    time steps and labels of each row count.

    Labels that do not fit into their time steps have probability zero: the loss is infinite, and 0 with
    `zero_infinity`; the gradient is 0 in either case, where torch's is NaN without `zero_infinity`.

    Raises:
        SignatureError: The prediction has other than three axes, or an unknown number of classes.
    """

    expects: ClassVar[Expectation] = "scores"

    blank: int = 0
    zero_infinity: bool = False
    time_first: bool = False
    input_lengths: str = field(default="input_lengths", kw_only=True)
    target_lengths: str = field(default="target_lengths", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.blank >= 0, f"blank must be the number of a class, got {self.blank!r}")
        names = {self.target, self.input_lengths, self.target_lengths}
        require(all(names) and len(names) == 3, "target, input_lengths and target_lengths must be different names")

    def targets(self, prediction: ArraySpec, *others: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return labels and both lengths."""
        shape = prediction.shape
        if len(shape) != 3 or not isinstance(shape[2], int):
            raise SignatureError(
                "CTC needs scores of a fixed number of classes, with one axis each for batch, time and classes, but "
                f"they have shape {shape}"
            )
        if self.blank >= shape[2]:
            raise SignatureError(f"CTC has blank={self.blank}, but there are {shape[2]} classes")
        batch = shape[1 if self.time_first else 0]
        return (
            ArraySpec(self.target, "int64", (batch, "labels")),
            ArraySpec(self.input_lengths, "int64", (batch,)),
            ArraySpec(self.target_lengths, "int64", (batch,)),
        )

    def samples(self, prediction: ArraySpec, *others: ArraySpec) -> int | str:
        """See `Loss`."""
        return prediction.shape[1 if self.time_first else 0]

    def each(self, xp: Namespace, prediction: Array, *targets: Array) -> Each:
        """Return the sequences' losses; for the mean, each over its number of labels."""
        losses, lengths = self._losses(xp, prediction, *targets), xp.astype(targets[2], prediction.dtype)
        return Each(losses if self.reduction == "sum" else losses / xp.clip(lengths, 1.0, None))

    def _losses(self, xp: Namespace, prediction: Array, *targets: Array) -> Array:
        """The loss of each sequence.

        A path moves between labels l_1 … l_S and the blanks b_0 … b_S around them: from l_i to b_i, from b_(i-1) to
        l_i, from l_(i-1) to l_i if that is another label; and may stay where it is.
        """
        target, input_lengths, target_lengths = targets
        scores = prediction if self.time_first else xp.permute_dims(prediction, (1, 0, 2))
        log_probability = scores - logsumexp(xp, scores, 2)
        # Padding may be anything: what lies behind the last label never reaches the end.
        labels = xp.clip(target, 0, prediction.shape[2] - 1)
        zeros = xp.astype(xp.zeros_like(labels), prediction.dtype)
        repeats = xp.equal(labels, preceding(xp, labels, -1))
        first = xp.equal(preceding(xp, zeros, 1.0), 1.0)
        steps = xp.expand_dims(input_lengths, axis=1)
        blank = xp.asarray([self.blank], dtype=xp.int64)

        def move(carried: Sequence[Array], slices: Sequence[Array]) -> list[Array]:
            time, before, blanks, path = carried
            of_blank = xp.take(slices[0], blank, axis=1)
            of_label = xp.take_along_axis(slices[0], labels, axis=1)
            from_blank = xp.where(first, before, preceding(xp, blanks, _NEVER))
            from_label = xp.where(repeats, _NEVER, preceding(xp, path, _NEVER))
            moved = (
                before + of_blank,
                _either(xp, blanks, path) + of_blank,
                _either(xp, path, from_blank, from_label) + of_label,
            )
            running = time < steps
            kept = [xp.where(running, new, old) for new, old in zip(moved, carried[1:], strict=True)]
            return [time + 1, *kept]

        start = xp.zeros_like(steps)
        carried = [xp.sum(start), xp.astype(start, prediction.dtype), zeros + _NEVER, zeros + _NEVER]
        _, before, blanks, path = loop(xp, move, carried, [log_probability])
        last = xp.expand_dims(xp.clip(target_lengths - 1, 0, None), axis=1)
        ends = _either(xp, *(xp.take_along_axis(each, last, axis=1) for each in (blanks, path)))
        found = xp.squeeze(xp.where(xp.expand_dims(target_lengths, axis=1) > 0, ends, before), axis=1)
        return xp.where(found < 0.1 * _NEVER, 0.0 if self.zero_infinity else float("inf"), -found)


def _either(xp: Namespace, *logarithms: Array) -> Array:
    """The logarithm of a sum of probabilities."""
    return xp.squeeze(logsumexp(xp, xp.stack(logarithms, axis=0), 0), axis=0)
