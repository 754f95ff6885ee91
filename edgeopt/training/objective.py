"""What is minimised: losses of the model's outputs, each a mean of its own, and their weighted sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from edgeopt import tracing as xp
from edgeopt.errors import SignatureError
from edgeopt.losses import ArraySpec, Loss
from edgeopt.tracing import Array, Tracer, new_graph
from edgeopt.training.names import snake_case
from edgeopt_runtime.manifest import InputSpec

__all__ = ["Objective", "ShareSum", "Term", "TracedTerm", "resolve_objective"]


@dataclass(frozen=True)
class Term:
    """One loss of the objective.

    Attributes:
        name: What it is called among the others.
        factor: What multiplies it.
        loss: Its kind and settings.
        outputs: The model's outputs that it reads.
        inputs: The batch inputs that it reads.
        share: Which of the objective's weights its gradient is divided by, from 0.
        ratio: That weight over the loss's own, the same for every batch.
    """

    name: str
    factor: float
    loss: Loss
    outputs: tuple[str, ...]
    inputs: tuple[InputSpec, ...]
    share: int = 0
    ratio: float = 1.0


class TracedTerm(NamedTuple):
    """A loss in a graph: its sum over the batch, and its weight."""

    term: Term
    total: Array
    weight: Array


class ShareSum(NamedTuple):
    """What is divided by one weight: the losses' sum, factors included, and the weight."""

    total: Array
    weight: Array


@dataclass(frozen=True)
class Objective:
    """Σ factor · (loss sum) / (its weight).

    Gradients of losses that are divided by the same weight are accumulated together: a share. There is one share
    unless the losses count different things.
    """

    loss: Loss
    terms: tuple[Term, ...]

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """The batch inputs of all losses, each once."""
        return tuple({spec.name: spec for term in self.terms for spec in term.inputs}.values())

    @property
    def outputs(self) -> tuple[str, ...]:
        """The model's outputs that losses read, each once."""
        return tuple(dict.fromkeys(name for term in self.terms for name in term.outputs))

    @property
    def shares(self) -> int:
        """How many different weights there are."""
        return 1 + max(term.share for term in self.terms)

    def outputs_of(self, share: int) -> tuple[str, ...]:
        """The model's outputs that the losses of one share read."""
        found = (name for term in self.terms if term.share == share for name in term.outputs)
        return tuple(dict.fromkeys(found))

    def only(self, owner: str) -> Term:
        """The term, where there is one alone.

        Raises:
            SignatureError: There are several.
        """
        if len(self.terms) > 1:
            raise SignatureError(f"{owner} works with one loss, and there are {len(self.terms)}: leave the others out.")
        return self.terms[0]

    def trace(self, predictions: Mapping[str, Array], batch: Callable[[InputSpec], Array]) -> list[TracedTerm]:
        """Sum and weight of every loss, those of whose outputs there are; the others need training's outputs.

        Raises:
            SignatureError: A loss gives something else than two numbers.
        """
        traced = []
        for term in self.terms:
            if all(name in predictions for name in term.outputs):
                arrays = [*(predictions[name] for name in term.outputs), *(batch(spec) for spec in term.inputs)]
                total, weight = term.loss.terms(xp, arrays[0], *arrays[1:])
                require_scalars(type(term.loss).__name__, {"sum": total, "weight": weight})
                traced.append(TracedTerm(term, total, weight))
        return traced

    def by_share(self, traced: Sequence[TracedTerm]) -> list[ShareSum]:
        """The sums that belong together, in the order of the shares."""
        found: dict[int, ShareSum] = {}
        for term, total, weight in traced:
            scaled = (term.factor * term.ratio) * total
            if term.share in found:
                before = found[term.share]
                found[term.share] = ShareSum(before.total + xp.astype(scaled, before.total.dtype), before.weight)
            else:
                found[term.share] = ShareSum(scaled, weight)
        return [found[share] for share in sorted(found)]


def require_scalars(owner: str, arrays: Mapping[str, Array]) -> None:
    """Refuse sums that are no floating-point numbers of the graph. Raises `SignatureError`."""
    for what, term in arrays.items():
        if not isinstance(term, Array) or term.ndim or term.dtype.kind in "iub":
            raise SignatureError(
                f"{owner} must return a sum and a weight as floating-point arrays without dimensions, "
                f"but its {what} is {term}; write xp.sum(...), xp.astype(..., prediction.dtype), or xp.ones_like(...)."
            )


def resolve_objective(
    loss: Loss, default: str, outputs: Mapping[str, ArraySpec], labels: Mapping[str, ArraySpec] | None = None
) -> Objective:
    """The losses with what they read.

    Args:
        loss: What is minimised.
        default: The output that losses read which name none.
        outputs: What the model returns in training.
        labels: Inputs of the model that only losses of its own depend on.

    Raises:
        SignatureError: There is no such output, a loss does not fit what it reads, or two want different things under
            one name.
    """
    terms = [
        _term(factor, each.settled(default, outputs, labels or {}), default, outputs) for factor, each in loss.parts()
    ]
    names: list[str] = []
    for term in terms:
        count = sum(name == term.name or name.startswith(f"{term.name}_") for name in names)
        names.append(f"{term.name}_{count + 1}" if count else term.name)
    terms = [replace(term, name=name) for term, name in zip(terms, names, strict=True)]
    _check_shared(terms)
    return Objective(loss, _with_shares(terms, outputs) if len(terms) > 1 else tuple(terms))


def _term(factor: float, loss: Loss, default: str, outputs: Mapping[str, ArraySpec]) -> Term:
    read = tuple(name or default for name in loss.outputs())
    missing = [name for name in read if name not in outputs]
    if missing:
        raise SignatureError(
            f"{type(loss).__name__} reads the output {missing[0]!r}, and the model has no output of that name in "
            f"training; its outputs there are {list(outputs)}."
        )
    inputs = loss.inputs(*(outputs[name] for name in read))
    name = loss.output or snake_case(type(loss).__name__)
    return Term(name, factor, loss, read, tuple(InputSpec(spec.name, "loss", *spec[1:]) for spec in inputs))


def _check_shared(terms: Sequence[Term]) -> None:
    """Two losses may read one batch input if they take it for the same."""
    known: dict[str, tuple[InputSpec, Loss]] = {}
    for term in terms:
        for spec in term.inputs:
            before, owner = known.setdefault(spec.name, (spec, term.loss))
            if before != spec:
                raise SignatureError(
                    f"{type(owner).__name__} wants the batch input {spec.name!r} as {_words(before)}, "
                    f"{type(term.loss).__name__} as {_words(spec)}; give one of them another name: target='...'."
                )


def _words(spec: InputSpec) -> str:
    classes = "" if spec.classes is None else f", {spec.classes} classes, {spec.ignored} ignored"
    return f"{spec.dtype} of shape {list(spec.shape)}{classes}"


def _with_shares(terms: Sequence[Term], outputs: Mapping[str, ArraySpec]) -> tuple[Term, ...]:
    """Find out which losses are divided by the same, or by multiples of it."""
    tracer = Tracer(new_graph("shares"))
    arrays = {name: tracer.input(f"output.{name}", np.dtype(spec.dtype), spec.shape) for name, spec in outputs.items()}
    inputs = {spec.name: spec for term in terms for spec in term.inputs}
    batch = {name: tracer.input(f"batch.{name}", np.dtype(spec.dtype), spec.shape) for name, spec in inputs.items()}
    shares: dict[object, int] = {}
    first: dict[int, float] = {}
    found = []
    for term in terms:
        read = [*(arrays[name] for name in term.outputs), *(batch[spec.name] for spec in term.inputs)]
        key, size = _divisor(term, read)
        share = shares.setdefault(key, len(shares))
        found.append(replace(term, share=share, ratio=first.setdefault(share, size) / size))
    return tuple(found)


def _divisor(term: Term, arrays: Sequence[Array]) -> tuple[object, float]:
    """What a loss is divided by, as a key that equal ones share, and the number of them that it is."""
    loss = term.loss
    if loss.reduction == "sum":
        return "one", 1.0
    counted = type(loss).sum_and_weight is Loss.sum_and_weight and type(loss).terms is Loss.terms
    if counted:
        weighted = loss.sample_weight is not None
        values, weights = loss.each(xp, arrays[0], *arrays[1 : len(arrays) - weighted])
        if weights is None and None not in values.shape:
            named = tuple(sorted(dim for dim in values.shape if isinstance(dim, str)))
            size = float(np.prod([dim for dim in values.shape if isinstance(dim, int)]))
            return (loss.sample_weight, named), size
    # A tracer records the same computation once.
    return loss.terms(xp, arrays[0], *arrays[1:])[1].value, 1.0
