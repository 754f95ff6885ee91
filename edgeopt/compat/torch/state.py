"""The state of torch.optim's own optimizers, and of those of bitsandbytes and torchao, in and out of a bundle's.

Slots have torch's names here, so that little is left to translate: the step, which is one for all parameters here and
one for each in torch, Adafactor's name for the full second moment of vectors, and what ASGD keeps though it follows
from the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch

from edgeopt.bundle import Bundle
from edgeopt.compat.torch.narrow import Slot, is_narrow, keep, read_entry, values_of, whole, written_entry
from edgeopt.optimizers.kept import by_slot
from edgeopt.schedules import Constant
from edgeopt_runtime.errors import StateError

__all__ = ["load_torch_state", "torch_state"]

NumpyArray = np.ndarray[Any, Any]
Target = TypeVar("Target", Bundle, Mapping[str, NumpyArray])

# As in edgeopt.training.names, whose import would be that of onnx.
PREFIX, STEP = "optimizer.", "optimizer.step"
# What torch keeps although it follows from other state.
DERIVED = {"ax": ("eta", "mu")}
# Optimizers of torch without a count of steps.
WITHOUT_STEP = ("SGD", "Muon")


def load_torch_state(
    target: Target,
    state_dict: Mapping[str, Any],
    names: Sequence[str] | None = None,
    *,
    scheduler: Mapping[str, Any] | None = None,
    step: int | None = None,
) -> Target:
    """A bundle, or a state by tensor name, with the optimizer state of a torch optimizer in it.

    Training goes on where torch stopped, if the rule has the same settings (`edgeopt.optimizers.from_config`). Weights
    are not part of an optimizer's state; `TrainingSession.load_parameters` takes them.

    Args:
        target: Whose optimizer state to replace. It is left as it is.
        state_dict: What `optimizer.state_dict()` gives.
        names: The name of each parameter, in the order in which the optimizer holds them; not needed if the optimizer
            was made from `model.named_parameters()`.
        scheduler: What `scheduler.state_dict()` gives. SGD and Muon do not count their updates, so that a schedule goes
            on where it was only if this or `step` says where.
        step: The number of updates so far, in place of what optimizer and scheduler say.

    Raises:
        StateError: The names or the slots do not fit; the parameters have been updated different numbers of times, or
            the scheduler has been stepped another number of times; or nothing says how often, and the rate of the
            target depends on it.
    """
    arrays = dict(target.state if isinstance(target, Bundle) else target)
    slots = _slots(target)
    counts = set()
    for place, name in _named(state_dict["param_groups"], names):
        entry = {key: value for key, value in state_dict["state"].get(place, {}).items() if value is not None}
        if not entry:
            continue
        if name not in slots:
            raise StateError(f"There is no optimizer state for a parameter {name!r}; there is for {', '.join(slots)}.")
        counts.add(int(entry.pop("step", -1)))
        for key, value in _translated(name, entry, slots[name], arrays).items():
            arrays[key] = value
    if len(counts) > 1:
        raise StateError(f"The parameters have been updated different numbers of times: {sorted(counts)}.")
    counted = next(iter(counts), None)
    if counted is None and _is_plain_sgd(state_dict["param_groups"]):
        counted = -1  # it keeps nothing
    done = _completed(counted, scheduler, step)
    if done is None and counted is not None:
        if _depends_on_count(target):
            raise StateError(
                "This optimizer does not count its updates, and the learning rate here depends on their number: give "
                "scheduler=scheduler.state_dict(), or step=."
            )
        # All that matters is whether this is the first update.
        done = max(int(arrays[STEP]), 1 if counts else 0)
    if done is not None:
        arrays[STEP] = np.asarray(done, arrays[STEP].dtype)
    return replace(target, state=arrays) if isinstance(target, Bundle) else arrays


def _completed(counted: int | None, scheduler: Mapping[str, Any] | None, step: int | None) -> int | None:
    """The number of updates so far; None if nobody knows.

    Args:
        counted: What the optimizer says; -1 if it does not count, None if it has not been updated.
        scheduler: The state of a scheduler.
        step: What the user says.
    """
    if step is not None:
        if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < 2**63:
            raise StateError(f"step must be the number of updates so far, got {step!r}.")
        return step
    known = counted if counted is not None and counted >= 0 else None
    if scheduler is None:
        return known
    if "last_epoch" not in scheduler:
        raise StateError("scheduler must be what scheduler.state_dict() gives, with `last_epoch`.")
    epoch = int(scheduler["last_epoch"])
    if counted is not None and known is not None and epoch != known:
        raise StateError(
            f"The scheduler has been stepped {epoch} times and the optimizer {known} times. Rates follow the number of "
            "updates here: if that is meant, give step=."
        )
    return epoch


def _is_plain_sgd(groups: Sequence[Mapping[str, Any]]) -> bool:
    """Whether these are the settings of torch's SGD without momentum, which keeps no state."""
    return all("dampening" in group and not group.get("momentum") for group in groups)


def _depends_on_count(target: Bundle | Mapping[str, NumpyArray]) -> bool:
    """Whether a rate may follow a schedule; of a state by tensor name only the count is known."""
    if isinstance(target, Bundle):
        schedules = [each for each in target.manifest.hyperparameters if each.name.startswith("schedule.")]
        return not all(each.description.endswith(f"of {Constant.__name__}") for each in schedules)
    return int(target[STEP]) == 0


def torch_state(
    source: Bundle | Mapping[str, NumpyArray], optimizer: torch.optim.Optimizer, names: Sequence[str] | None = None
) -> dict[str, Any]:
    """The optimizer state of a bundle, or of a state by tensor name, as `optimizer.load_state_dict` takes it.

    Args:
        source: Where to take it from: a bundle, `session.state()`.
        optimizer: The torch optimizer that is to go on; its settings are kept.
        names: As for `load_torch_state`.

    Raises:
        StateError: The names do not fit.
    """
    arrays = source.state if isinstance(source, Bundle) else source
    slots, step = _slots(source), int(arrays[STEP])
    kind, groups = type(optimizer).__name__, optimizer.state_dict()["param_groups"]
    settings = {place: group for group in groups for place in group["params"]}
    params = [param for group in optimizer.param_groups for param in group["params"]]
    state: dict[int, dict[str, Any]] = {}
    for place, name in _named(groups, names):
        if name not in slots and slots:
            raise StateError(f"There is no optimizer state for a parameter {name!r}; there is for {', '.join(slots)}.")
        if step == 0:
            continue
        own = {slot: arrays[key] for slot, key in slots.get(name, {}).items()}
        if is_narrow(optimizer):
            if own:
                state[place] = written_entry(optimizer, params[place], own, arrays[name], step)
            continue
        values = values_of(own, arrays.get(name))
        entry: dict[str, Any] = {slot: torch.tensor(value) for slot, value in _for_torch(kind, values).items()}
        if kind not in WITHOUT_STEP:
            entry["step"] = torch.tensor(float(step))
        if kind == "ASGD":
            group = settings[place]
            entry["eta"] = torch.tensor(group["lr"] / (1 + group["lambd"] * group["lr"] * step) ** group["alpha"])
            entry["mu"] = torch.tensor(1 / max(1.0, step - group["t0"]))
        if entry:
            state[place] = entry
    return {"state": state, "param_groups": groups}


def _slots(target: Bundle | Mapping[str, NumpyArray]) -> dict[str, dict[str, str]]:
    """By parameter and slot, the name of the tensor."""
    found: dict[str, dict[str, str]] = {}
    if isinstance(target, Bundle):
        for spec in target.manifest.tensors:
            if spec.role == "optimizer" and spec.parameter is not None and spec.slot is not None:
                found.setdefault(spec.parameter, {})[spec.slot] = spec.name
        return found
    for key in target:
        slot, _, parameter = key.removeprefix(PREFIX).partition(".")
        if key.startswith(PREFIX) and parameter:
            found.setdefault(parameter, {})[slot] = key
    return found


def _named(groups: Sequence[Mapping[str, Any]], names: Sequence[str] | None) -> Iterator[tuple[Any, str]]:
    places = [place for group in groups for place in group["params"]]
    if names is None:
        names = [name for group in groups for name in group.get("param_names", ())]
        if not names:
            raise StateError("The state holds no names of parameters: give `names`, in the order of the optimizer.")
    if len(names) != len(places):
        raise StateError(f"The optimizer holds {len(places)} parameters, but there are {len(names)} names.")
    return zip(places, names, strict=True)


def _translated(
    name: str, entry: Mapping[str, Any], slots: Mapping[str, str], arrays: Mapping[str, NumpyArray]
) -> dict[str, NumpyArray]:
    """The tensors of one parameter, under the names they have here."""
    plain, parts = by_slot(slots)
    values = read_entry(entry, {**plain, **parts})
    if "variance" in values:
        # Adafactor's full second moment of a vector; the place of the column factor is not used.
        values["row_var"] = values.pop("variance")
        values["col_var"] = arrays[slots["col_var"]] if "col_var" in slots else ()
    for slot, derived in DERIVED.items():
        if slot in slots:
            for key in derived:
                values.pop(key, None)
    if values.keys() != plain.keys() | parts.keys():
        raise StateError(
            f"The torch state of {name!r} has {', '.join(sorted(values)) or 'nothing'}, where the rule has "
            f"{', '.join(sorted({**plain, **parts})) or 'nothing'}: another optimizer, or other settings."
        )
    formats = any(isinstance(value, Slot) for value in values.values()) or bool(parts)
    if formats and name not in arrays:
        raise StateError(f"State in formats is read together with its parameter, and there is no {name!r}.")
    made: dict[str, NumpyArray] = {}
    for slot, value in values.items():
        array = value if isinstance(value, Slot) else _array(value)
        if slot in plain:
            made[plain[slot]] = whole(array, arrays[name]) if isinstance(array, Slot) else array
        else:
            kept, _ = parts[slot]
            if not isinstance(array, Slot):
                _check_shape(slot, name, array, arrays[name])
            for full, part in keep(slot, array, kept, arrays[name]).items():
                made[slots[full]] = part
    for key, array in made.items():
        _check_shape(key, name, array, arrays[key])
    return {key: _as(array, arrays[key]) for key, array in made.items()}


def _check_shape(what: str, name: str, array: NumpyArray, wanted: NumpyArray) -> None:
    if array.shape != wanted.shape:
        raise StateError(f"{what} of {name!r} has shape {array.shape} in torch and {wanted.shape} here.")


def _as(array: NumpyArray, wanted: NumpyArray) -> NumpyArray:
    """In the dtype of what it replaces; bfloat16 lies in uint16 there."""
    return array.view(np.uint16) if str(array.dtype) == "bfloat16" else array.astype(wanted.dtype)


def _array(value: Any) -> NumpyArray:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = value.float() if value.dtype == torch.bfloat16 else value
    return np.asarray(value)


def _for_torch(kind: str, values: Mapping[str, NumpyArray]) -> dict[str, NumpyArray]:
    if kind == "Adafactor" and values["col_var"].ndim == 0:
        return {"variance": values["row_var"]}
    return dict(values)
