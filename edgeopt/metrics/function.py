"""A metric of one's own without a class of one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import require
from edgeopt.errors import ConfigurationError
from edgeopt.losses import ArraySpec
from edgeopt.metrics.base import Metric
from edgeopt.metrics.numerics import count, wide

__all__ = ["FunctionMetric", "from_function"]

#: What a function gives for a batch: values, whose mean is meant; their sum and weight; or sums by name.
BatchSums = Callable[..., Any]
Formula = Callable[[Namespace, Mapping[str, Array]], Any]


@dataclass(frozen=True)
class FunctionMetric(Metric):
    """See `from_function`, which makes one."""

    name: ClassVar[str] = "function"

    function: BatchSums = field(kw_only=True)
    formula: Formula | None = field(default=None, kw_only=True)
    own_targets: tuple[ArraySpec, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(callable(self.function), f"the metric must be a function, got {self.function!r}")
        require(self.formula is None or callable(self.formula), f"value must be a function, got {self.formula!r}")

    def targets(self, prediction: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return those that were given."""
        return self.own_targets

    def sums(self, xp: Namespace, prediction: Array, *targets: Array) -> Mapping[str, Array]:
        """Return what the function gives, as sums."""
        found = self.function(xp, prediction, *targets)
        if isinstance(found, Mapping):
            if self.formula is None:
                raise ConfigurationError(
                    f"The metric {self.reported!r} gives sums by name; say with value=... what is made of them."
                )
            return found
        if isinstance(found, tuple):
            total, weight = found
            return {"sum": total, "weight": weight}
        return {"sum": xp.sum(wide(xp, found)), "weight": count(xp, xp.ones_like(found), found)}

    def value(self, xp: Namespace, sums: Mapping[str, Array]) -> Array | Mapping[str, Array]:
        """Return the formula's result, or the mean."""
        if self.formula is None:
            return sums["sum"] / sums["weight"]
        result: Array | Mapping[str, Array] = self.formula(xp, sums)
        return result


def from_function(
    function: BatchSums,
    *,
    value: Formula | None = None,
    label: str | None = None,
    output: str | None = None,
    target: str | None = None,
    targets: Sequence[ArraySpec] = (),
) -> Metric:
    """Make a metric of a function of arrays.

    Args:
        function: Called as `function(xp, prediction, *targets)`, `xp` being a namespace like numpy's, with the names of
            the Array API. Its result is an array of values, whose mean is reported; or a tuple of their sum and their
            weight; or several sums by name, floating-point arrays of fixed shapes that add up over batches.
        value: Called as `value(xp, sums)`: what is reported of such sums, a number, an array, or several by name.
        label: What it is reported as; the function's name by default.
        output: The model's output that it reads; by default that of the loss.
        target: The batch input of the loss that it reads; by default all that go with the output.
        targets: Inputs of evaluation batches that no loss has, read instead of the loss's.

    Raises:
        ConfigurationError: What was given is no function.
    """
    name = label or str(getattr(function, "__name__", ""))
    if not name.isidentifier():
        raise ConfigurationError(f"A metric of the function {function!r} needs a name: label='...'.")
    return FunctionMetric(
        function=function, formula=value, own_targets=tuple(targets), label=name, output=output, target=target
    )
