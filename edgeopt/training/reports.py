"""What is reported: the losses and the metrics, as sums that add up over batches, and the numbers made of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from edgeopt import tracing as xp
from edgeopt.errors import SignatureError
from edgeopt.losses import ArraySpec, FromOutput
from edgeopt.metrics import MeanMetric, Metric
from edgeopt.tracing import Array
from edgeopt.training.objective import Objective, TracedTerm, require_scalars
from edgeopt_runtime.manifest import InputSpec

__all__ = [
    "LOSS",
    "ResolvedMetric",
    "loss_numbers",
    "loss_sums",
    "metric_numbers",
    "metric_sums",
    "own_inputs",
    "resolve_metrics",
]

LOSS = "loss"
#: The kind of batch inputs that only metrics read.
METRIC_INPUT = "metric"


@dataclass(frozen=True)
class ResolvedMetric:
    """A metric with what it reads.

    Attributes:
        metric: Its kind and settings.
        output: The model's output that it reads.
        inputs: The batch inputs that it reads.
        trained: Whether training reports it, too: it has the output, and its batches have the inputs.
    """

    metric: Metric
    output: str
    inputs: tuple[InputSpec, ...]
    trained: bool = True


def resolve_metrics(
    metrics: Sequence[Metric],
    objective: Objective,
    default: str,
    outputs: Mapping[str, ArraySpec],
    in_training: Collection[str],
) -> tuple[ResolvedMetric, ...]:
    """The metrics with what they read.

    Args:
        metrics: What is to be reported.
        objective: The losses.
        default: The output that is read where nobody says which.
        outputs: What the model returns in evaluation.
        in_training: The names of what it returns in training.

    Raises:
        SignatureError: There is no such output or input, or a metric does not fit what it reads.
    """
    names = [metric.reported for metric in metrics]
    repeated = sorted({name for name in names if names.count(name) > 1 or name in (LOSS, "lr")})
    if repeated:
        raise SignatureError(
            f"Several reported values would be called {repeated}; use each metric once, or give label='...'."
        )
    found: list[ResolvedMetric] = []
    for metric in metrics:
        resolved = _resolved(metric, objective, default, outputs)
        own = any(spec.kind == METRIC_INPUT for spec in resolved.inputs)
        found.append(replace(resolved, trained=not own and resolved.output in in_training))
    _check_own_inputs(found)
    return tuple(found)


def own_inputs(metrics: Sequence[ResolvedMetric]) -> tuple[InputSpec, ...]:
    """The batch inputs that no loss has, each once."""
    specs = (spec for each in metrics for spec in each.inputs if spec.kind == METRIC_INPUT)
    return tuple({spec.name: spec for spec in specs}.values())


def _check_own_inputs(metrics: Sequence[ResolvedMetric]) -> None:
    """Two metrics may read one batch input if they take it for the same."""
    known: dict[str, tuple[InputSpec, Metric]] = {}
    for each in metrics:
        for spec in each.inputs:
            before, owner = known.setdefault(spec.name, (spec, each.metric))
            if before != spec:
                raise SignatureError(
                    f"{type(owner).__name__} wants the batch input {spec.name!r} as {before.dtype} of shape "
                    f"{list(before.shape)}, {type(each.metric).__name__} as {spec.dtype} of shape {list(spec.shape)}; "
                    "give one of them another name: target='...'."
                )


def _resolved(metric: Metric, objective: Objective, default: str, outputs: Mapping[str, ArraySpec]) -> ResolvedMetric:
    kind, read = type(metric).__name__, metric.output or _default(objective, default)
    if read not in outputs:
        raise SignatureError(
            f"{kind} reads the output {read!r}, and the model has none of that name in evaluation: {list(outputs)}."
        )
    inputs = _inputs(metric, objective, read, outputs[read])
    loss = next((term.loss for term in objective.terms if set(inputs) & set(term.inputs)), None)
    specs = [ArraySpec(spec.name, spec.dtype, spec.shape, spec.classes, spec.ignored) for spec in inputs]
    metric.check(loss, outputs[read], specs)
    return ResolvedMetric(metric, read, inputs)


def _inputs(metric: Metric, objective: Objective, read: str, prediction: ArraySpec) -> tuple[InputSpec, ...]:
    """The batch inputs that a metric reads."""
    known = {spec.name: spec for spec in objective.inputs}
    if metric.target in known:
        return (known[metric.target],)
    declared = metric.targets(prediction)
    if declared:
        return tuple(known.get(spec.name, InputSpec(spec.name, METRIC_INPUT, *spec[1:])) for spec in declared)
    if metric.target is not None:
        raise SignatureError(
            f"{type(metric).__name__} reads the target {metric.target!r}, and no loss has that; they have "
            f"{list(known)}. A metric that has it for itself says so in `targets`."
        )
    term = next((term for term in objective.terms if read in term.outputs), objective.terms[0])
    return tuple(spec for spec in term.inputs if spec.name != term.loss.sample_weight)


def _default(objective: Objective, default: str) -> str:
    """The output that metrics read which name none: that of the loss, or of the first one."""
    first = objective.terms[0]
    return default if default in objective.outputs or isinstance(first.loss, FromOutput) else first.outputs[0]


def loss_sums(objective: Objective, traced: Sequence[TracedTerm]) -> dict[str, Array]:
    """What the losses report, by name: of each its sum and its weight. Losses that are not there count nothing."""
    found = {term.name: (total, weight) for term, total, weight in traced}
    some = traced[0].total
    sums: dict[str, Array] = {}
    for term in objective.terms:
        total, weight = found.get(term.name, (xp.zeros_like(some), xp.zeros_like(some)))
        sums |= {f"{_loss_name(objective, term.name)}.sum": total, f"{_loss_name(objective, term.name)}.weight": weight}
    return sums


def loss_numbers(objective: Objective, sums: Mapping[str, Array], *, empty: float | None) -> dict[str, Array]:
    """The loss, and each of several, from their sums.

    Args:
        objective: The losses.
        sums: As `loss_sums` gives them.
        empty: The loss where nothing counts; None lets it be 0/0. A loss among several adds nothing then.
    """
    if len(objective.terms) == 1:
        term = objective.terms[0]
        mean = _mean(sums, LOSS, empty)
        return {LOSS: mean if term.factor == 1.0 else term.factor * mean}
    parts = {term.name: _mean(sums, f"{LOSS}.{term.name}", None) for term in objective.terms}
    there = [_mean(sums, f"{LOSS}.{term.name}", 0.0) * term.factor for term in objective.terms]
    total = there[0]
    for each in there[1:]:
        total = total + each
    return {LOSS: total, **{f"{LOSS}.{name}": value for name, value in parts.items()}}


def _loss_name(objective: Objective, name: str) -> str:
    return LOSS if len(objective.terms) == 1 else f"{LOSS}.{name}"


def _mean(sums: Mapping[str, Array], name: str, empty: float | None) -> Array:
    total, weight = sums[f"{name}.sum"], sums[f"{name}.weight"]
    if empty is None:
        return total / weight
    # Where nothing counts the sum is zero, too.
    return total / xp.where(xp.equal(weight, 0.0), xp.ones_like(weight), weight)


def metric_sums(
    metrics: Sequence[ResolvedMetric], predictions: Mapping[str, Array], batch: Callable[[InputSpec], Array]
) -> dict[str, Array]:
    """What the metrics add up, by name.

    Raises:
        SignatureError: A metric gives something else than floating-point arrays.
    """
    sums: dict[str, Array] = {}
    for each in metrics:
        metric = each.metric
        found = metric.sums(xp, predictions[each.output], *(batch(spec) for spec in each.inputs))
        if set(found) == {"sum", "weight"}:
            require_scalars(type(metric).__name__, found)
        for key, array in found.items():
            if (
                not isinstance(array, Array)
                or array.dtype.kind in "iub"
                or not all(isinstance(dim, int) for dim in array.shape)
            ):
                raise SignatureError(
                    f"{type(metric).__name__} must add up floating-point arrays of fixed shapes, but its sum "
                    f"{key!r} is {array}; write xp.sum(...) and xp.astype(..., prediction.dtype)."
                )
            sums[f"{metric.reported}.{key}"] = array
    return sums


def metric_numbers(
    metrics: Sequence[ResolvedMetric], sums: Mapping[str, Array], *, empty: float | None = None
) -> Iterator[tuple[str, Array]]:
    """The metrics from their sums, by name; a mean is `empty` where nothing counts, or 0/0."""
    for each in metrics:
        metric, prefix = each.metric, f"{each.metric.reported}."
        mine = {name.removeprefix(prefix): array for name, array in sums.items() if name.startswith(prefix)}
        value = _mean(sums, metric.reported, empty) if isinstance(metric, MeanMetric) else metric.value(xp, mine)
        if isinstance(value, Array):
            yield metric.reported, value
        else:
            yield from ((f"{metric.reported}.{name}", array) for name, array in value.items())
