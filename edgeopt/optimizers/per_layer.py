"""Which parameters keep their state in how many bits, under a budget of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from edgeopt.checks import require
from edgeopt.components import described
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers.groups import exactly
from edgeopt.optimizers.kept import Kept, by_slot, decoded, format_of
from edgeopt.optimizers.slots import SIGNED, UNSIGNED
from edgeopt.quantization import StateFormat, as_state_format

__all__ = ["per_layer_quant"]

NumpyArray: TypeAlias = np.ndarray[Any, Any]

#: A parameter, and its slots as the rule knows them.
Moments: TypeAlias = Mapping[str, tuple[NumpyArray, Mapping[str, NumpyArray]]]

_EPS = 1e-8


class _Choice(NamedTuple):
    """A format for a parameter: its name, the bytes of all slots, and what it costs."""

    state: str | None
    size: int
    cost: float


def per_layer_quant(
    source: Any, budget_mb: float, formats: Sequence[str | None] = (None, "int8", "int4")
) -> dict[str, str | None]:
    """The format of each parameter's state, so that all of it fits into a budget and steps change the least.

    With m a slot with a sign (a mean of gradients) and v one without (a mean of squares), and hats for what a format
    makes of them, a format costs a parameter::

        Σ v·(m / (√v + eps) - m̂ / (√v̂ + eps))²

    the change of its next step, weighted by the second moment: in units of lr²/2, what the loss grows by where v is the
    curvature (the empirical Fisher information, as in Adam). Without v it is Σ (m - m̂)², and without m, √v is in its
    place. All parameters begin in the first format; then, step by step, the one goes on to its next format that costs
    least for each byte it saves, until the budget is met.

    Args:
        source: A bundle that has trained for some steps, since moments that are zero say nothing; or a
            `torch.nn.Module` after `loss.backward()`, whose gradients and their squares are the moments of Adam then.
        budget_mb: MiB for the optimizer's state.
        formats: Names of formats from wide to narrow, None for state as it is.

    Returns:
        By pattern of parameter name what `state=` takes: `AdamW(state=per_layer_quant(bundle, 10.0))`.

    Raises:
        ConfigurationError: There is no such format, the budget is too small for the narrowest, or the source has no
            moments.
    """
    require(len(formats) > 0, "formats must name one format at least")
    states = [None if name is None else as_state_format(name) for name in formats]
    moments = _moments(source)
    choices = {name: _choices(own, formats, states) for name, own in moments.items()}
    place = dict.fromkeys(choices, 0)
    total, budget = sum(own[0].size for own in choices.values()), budget_mb * 2**20
    while total > budget:
        moves = [(_rate(own, place[name]), name) for name, own in choices.items() if place[name] + 1 < len(own)]
        if not moves:
            raise ConfigurationError(
                f"State takes {total / 2**20:.3g} MiB in the narrowest of these formats, more than the budget of "
                f"{budget_mb:.3g} MiB; give narrower formats, or train fewer parameters."
            )
        _, name = min(moves)
        total -= choices[name][place[name]].size - choices[name][place[name] + 1].size
        place[name] += 1
    return {exactly(name): own[place[name]].state for name, own in choices.items()}


def _rate(own: Sequence[_Choice], place: int) -> float:
    """What the next format costs for each byte that it saves."""
    return (own[place + 1].cost - own[place].cost) / (own[place].size - own[place + 1].size)


def _choices(
    own: tuple[NumpyArray, Mapping[str, NumpyArray]],
    names: Sequence[str | None],
    states: Sequence[StateFormat | None],
) -> list[_Choice]:
    """The formats of a parameter that save memory over those before, and cost the less for each byte the earlier."""
    kept: list[_Choice] = []
    for name, state in zip(names, states, strict=True):
        choice = _priced(own, name, state)
        if kept and choice.size >= kept[-1].size:
            continue
        # One that costs more than what a narrower one would is passed over: no budget is better met by it.
        while kept and kept[-1].cost > choice.cost:
            kept.pop()
        while len(kept) > 1 and _rate(kept, len(kept) - 2) > _rate([kept[-1], choice], 0):
            kept.pop()
        kept.append(choice)
    return kept


def _priced(own: tuple[NumpyArray, Mapping[str, NumpyArray]], name: str | None, state: StateFormat | None) -> _Choice:
    param, slots = own
    rounded, size = dict(slots), 0
    for slot, value in slots.items():
        form = None if state is None or param.size < state.smallest else format_of(slot, state)
        if form is None or value.shape != param.shape or not form.fits(param.shape):
            size += value.nbytes
        else:
            parts = form.first(value)
            size += sum(part.nbytes for part in parts.values())
            rounded[slot] = decoded(Kept("", form), parts, value)
    return _Choice(name, size, _cost(slots, rounded))


def _cost(slots: Mapping[str, NumpyArray], rounded: Mapping[str, NumpyArray]) -> float:
    squares = [slot for slot in slots if slot in UNSIGNED]
    means = [slot for slot in slots if slot in SIGNED]
    cost = 0.0
    for slot in means or squares[:1]:
        m, r = (np.asarray(each[slot], np.float64) for each in (slots, rounded))
        if squares:
            v, w = (np.asarray(each[squares[0]], np.float64) for each in (slots, rounded))
            if not means:
                m = r = np.sqrt(v)
            cost += float(np.sum(v * (m / (np.sqrt(v) + _EPS) - r / (np.sqrt(w) + _EPS)) ** 2))
        else:
            cost += float(np.sum((m - r) ** 2))
    return cost


def _moments(source: Any) -> Moments:
    manifest, state = getattr(source, "manifest", None), getattr(source, "state", None)
    found: dict[str, tuple[NumpyArray, Mapping[str, NumpyArray]]] = {}
    own: dict[str, dict[str, NumpyArray]] = {}
    if manifest is not None and isinstance(state, Mapping):
        for spec in manifest.tensors:
            if spec.role == "optimizer" and spec.parameter is not None and spec.slot is not None:
                own.setdefault(spec.parameter, {})[spec.slot] = np.asarray(state[spec.name])
        for name, slots in own.items():
            param = np.asarray(state[name])
            found[name] = (param, _whole(slots, param))
    elif callable(getattr(source, "named_parameters", None)):
        for name, parameter in source.named_parameters():
            if parameter.grad is not None:
                grad = parameter.grad.detach().cpu().float().numpy()
                found[name] = (grad, {"exp_avg": grad, "exp_avg_sq": grad**2})
    else:
        raise ConfigurationError(f"Give a bundle, or a torch.nn.Module with gradients; got {described(source)}.")
    if not any(np.any(value) for _, slots in found.values() for value in slots.values()):
        raise ConfigurationError(
            "All moments are zero, which tells nothing: train the bundle for some steps, or call loss.backward() first."
        )
    return found


def _whole(slots: Mapping[str, NumpyArray], param: NumpyArray) -> dict[str, NumpyArray]:
    plain, parts = by_slot(slots)
    return plain | {slot: decoded(kept, own, param) for slot, (kept, own) in parts.items()}
