"""Calls in the habits of other libraries: what has one meaning is taken, the rest is answered with what to do."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from edgeopt_runtime.errors import BatchError, EdgeoptError

__all__ = ["answered", "batches_only", "did_you_mean", "no_attribute", "one_batch"]

P = ParamSpec("P")
R = TypeVar("R")


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: a full stop, or a question with the one that is closest."""
    close = difflib.get_close_matches(word.lower(), list(choices), n=1, cutoff=0.7)
    return f"; did you mean {close[0]!r}?" if close else "."


def answered(
    error: type[EdgeoptError], instead: Mapping[str, str], needed: Mapping[str, str]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function raise an error of ours where Python would raise a `TypeError` about its arguments.

    Args:
        error: Its class.
        instead: What to give in place of an argument that the function does not have.
        needed: An example of each argument that has no default.
    """

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as wrong:
                raise error(_answer(function.__name__, signature, args, kwargs, instead, needed)) from wrong
            return function(*args, **kwargs)

        return call

    return wrap


def _answer(
    name: str,
    signature: inspect.Signature,
    args: Sequence[object],
    given: Mapping[str, object],
    instead: Mapping[str, str],
    needed: Mapping[str, str],
) -> str:
    parameters = {key: one for key, one in signature.parameters.items() if key != "self"}
    for argument in given:
        if argument in parameters:
            continue
        if argument in instead:
            return f"{name} has no argument {argument!r}: {instead[argument]}."
        return (
            f"{name} has no argument {argument!r}{did_you_mean(argument, parameters)} It has {', '.join(parameters)}."
        )
    try:
        bound = signature.bind_partial(*args, **given).arguments
    except TypeError:
        by_place = [key for key, one in parameters.items() if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        others = [f"{key}={example}" for key, example in needed.items() if key not in by_place]
        rest = f": {', '.join(others)}" if others else ""
        return f"{name} takes {' and '.join(by_place)} by place, and all else by name{rest}."
    missing = [f"{argument}={example}" for argument, example in needed.items() if argument not in bound]
    return f"{name} needs {' and '.join(missing)}."


def one_batch(batch: Any, others: tuple[Any, ...]) -> Any:
    """The batch of a call that may give its arrays one by one: ``step(x, y)`` is ``step((x, y))``."""
    return (batch, *others) if others else batch


def batches_only(batches: Any, others: tuple[Any, ...] = ()) -> None:
    """Refuse whole data sets where batches are asked for.

    Raises:
        BatchError: It is an array, arrays by name, or several arrays.
    """
    parts = batches if isinstance(batches, tuple) else (batches,)
    if others or isinstance(batches, Mapping) or any(hasattr(part, "shape") for part in parts):
        raise BatchError(
            "`fit` takes batches, not a whole data set: `fit([(x[i : i + 32], y[i : i + 32]) for i in range(0, len(x), "
            "32)])`; or `fit([(x, y)])`, if one batch is meant."
        )


def no_attribute(owner: str, name: str, instead: Mapping[str, str]) -> AttributeError:
    """The error about a name of another library, with what to use in its place."""
    hint = f": {instead[name]}" if name in instead else ""
    return AttributeError(f"{owner} has no attribute {name!r}{hint}.")
