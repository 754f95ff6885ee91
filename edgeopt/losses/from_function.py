"""A loss that is a plain function of arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import require
from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.losses.base import ArraySpec, Each, Loss

__all__ = ["FromFunction", "TargetSpec", "from_function", "is_array_program"]

#: What a target is: None for the first output's type and shape; a type, for one number a sample; or type and shape.
TargetSpec: TypeAlias = str | tuple[str, Sequence[int | str]] | None


@dataclass(frozen=True)
class FromFunction(Loss):
    """A loss that `from_function` makes.

    Attributes:
        function: `function(xp, *outputs, *targets)`.
        reads: The outputs, None for the default one.
        asked: The targets by name.
    """

    function: Callable[..., Any]
    reads: tuple[str | None, ...] = (None,)
    asked: tuple[tuple[str, TargetSpec], ...] = ()

    def outputs(self) -> tuple[str | None, ...]:
        """Return the names of the outputs."""
        return self.reads

    def targets(self, prediction: ArraySpec, *others: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return the targets."""
        return tuple(_target(name, spec, prediction) for name, spec in self.asked)

    def each(self, xp: Namespace, prediction: Array, *targets: Array) -> Each:
        """Return what the function returns.

        Raises:
            SignatureError: It is no array with the samples on its first axis, nor two.
        """
        name = _name(self.function)
        found = self.function(xp, prediction, *targets)
        values, weights = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
        for array in (values,) if weights is None else (values, weights):
            if not hasattr(array, "ndim"):
                raise SignatureError(
                    f"{name} must return an array, the losses of the samples, or two, losses and weights; it returns "
                    f"{array!r}."
                )
        if not values.ndim:
            raise SignatureError(
                f"{name} returns a single number. Return the losses of the samples, without the mean over them: from "
                "those, means over microbatches of any size can be put together."
            )
        return Each(values, weights)


def from_function(
    function: Callable[..., Any],
    *,
    outputs: str | Sequence[str] | None = None,
    targets: Mapping[str, TargetSpec] | Sequence[str] | None = None,
    **settings: Any,
) -> FromFunction:
    """Make a loss of a plain function of arrays, `def my_loss(xp, prediction, target): ...`.

    The function is called once, while the graph is written, with arrays that record what is done with them; `xp` has
    the functions of the Array API that `edgeopt.tracing` offers. It returns the loss of each sample, of any shape with
    the samples on the first axis; or these and what each weighs in the mean, as a pair.

    Args:
        function: Takes `xp`, the outputs, and the targets.
        outputs: The names of the model's outputs that it reads, one or several; by default one, that which
            `edgeopt.export(output=...)` says.
        targets: The batch inputs that it reads, each with what it is: None, like the first output; a type such as
            `"int64"`, one number for each sample; or a type and a shape, `("int64", ("batch", 5))`. Names alone are all
            like the first output. By default, the function's further parameters.
        settings: `reduction` and `sample_weight`, see `Loss`.

    Raises:
        ConfigurationError: It is no such function.
    """
    reads = (None,) if outputs is None else (outputs,) if isinstance(outputs, str) else tuple(outputs)
    names = _parameters(function)
    require(bool(reads), "outputs must name at least one output of the model")
    if targets is None:
        require(
            names is not None,
            f"{_name(function)} takes any number of arguments; name its targets: targets={{'target': None}}",
        )
        targets = (names or ())[1 + len(reads) :]
    asked = dict(targets) if isinstance(targets, Mapping) else dict.fromkeys(targets)
    if names is not None and len(names) != 1 + len(reads) + len(asked):
        raise ConfigurationError(
            f"{_name(function)} takes {', '.join(names) or 'nothing'}; a loss that reads {len(reads)} output(s) and "
            f"{len(asked)} target(s) takes xp and then those."
        )
    return FromFunction(
        function, reads, tuple((name, _checked(name, spec)) for name, spec in asked.items()), **settings
    )


def is_array_program(value: object) -> bool:
    """Whether something is a function whose first parameter is `xp`."""
    return inspect.isfunction(value) and next(iter(inspect.signature(value).parameters), None) == "xp"


def _checked(name: str, spec: TargetSpec) -> TargetSpec:
    if spec is None or isinstance(spec, str):
        return spec
    pair = tuple(spec)
    if len(pair) != 2 or not isinstance(pair[0], str) or isinstance(pair[1], str):
        raise ConfigurationError(
            f"The target {name!r} must be None, a type, or a type and a shape, ('int64', ('batch', 5)); got {spec!r}."
        )
    return pair[0], tuple(pair[1])


def _target(name: str, spec: TargetSpec, prediction: ArraySpec) -> ArraySpec:
    if spec is None:
        return prediction._replace(name=name)
    if isinstance(spec, str):
        return ArraySpec(name, spec, prediction.shape[:1])
    return ArraySpec(name, spec[0], tuple(spec[1]))


def _parameters(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """The names of the parameters without default; None if there may be any number."""
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return None
    return tuple(each.name for each in parameters if each.default is each.empty)


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
