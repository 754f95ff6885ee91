"""Components from the words of the command line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import TypeVar

import typer

from edgeopt.components import Kind, read
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import OPTIMIZER, Optimizer
from edgeopt.schedules import SCHEDULE, Schedule

__all__ = ["build", "build_all", "build_optimizer"]

T = TypeVar("T")


def build(kind: Kind[T], text: str) -> T:
    """Make the component that `text` describes; see `Kind.build`.

    Raises:
        typer.BadParameter: It describes none.
    """
    with _usage(f"--{kind.name}"):
        return kind.build(text)


def build_all(kind: Kind[T], texts: Iterable[str] | None) -> list[T]:
    """Make several."""
    return [build(kind, text) for text in texts or ()]


def build_optimizer(optimizer: str, lr: float | None, schedule: str | None, state: str | None = None) -> Optimizer:
    """The rule with its rate, which may be said once, in any of the three places.

    Args:
        optimizer: The rule in words; `lr` may be among its settings.
        lr: The rate, or the schedule's peak.
        schedule: A schedule in words, which may have its `lr`, too. One that is not told takes its own default, or the
            rule's.
        state: The storage format of the rule's slots, which may be among its settings.

    Raises:
        typer.BadParameter: Words that describe none, or a rate or a format that is given twice.
    """
    with _usage("--optimizer"):
        name, settings = read(optimizer)
    if state is not None:
        if "state" in settings:
            raise typer.BadParameter("the format is in --optimizer, too; give it once", param_hint="--optimizer-state")
        settings["state"] = state
    with _usage("--schedule"):
        shape, numbers = read(schedule) if schedule is not None else ("", {})
    places = {"--optimizer": settings.pop("lr", None), "--schedule": numbers.get("lr"), "--lr": lr}
    given = [place for place, rate in places.items() if rate is not None]
    if len(given) > 1:
        raise typer.BadParameter(f"the rate is in {' and in '.join(given)}; give it once", param_hint="--lr")
    rate = places["--lr"] if places["--optimizer"] is None else places["--optimizer"]
    with _usage("--optimizer"):
        if schedule is None:
            return OPTIMIZER.make(name, settings if rate is None else {**settings, "lr": rate})
        default = OPTIMIZER.make(name, settings).schedule.base
    with _usage("--schedule"):
        peak = _peak(SCHEDULE.find(shape), rate, default) if "lr" not in numbers else {}
        made = SCHEDULE.make(shape, {**numbers, **peak})
    with _usage("--optimizer"):
        return OPTIMIZER.make(name, {**settings, "lr": made})


def _peak(schedule: type[Schedule], rate: object, default: float) -> dict[str, object]:
    """The peak of a schedule whose words have none."""
    if rate is not None:
        return {"lr": rate}
    own = next((field for field in fields(schedule) if field.name == "lr"), None)
    return {"lr": default} if own is not None and not isinstance(own.default, (int, float)) else {}


@contextlib.contextmanager
def _usage(option: str) -> Iterator[None]:
    """Words that make no component are wrong usage of an option."""
    try:
        yield
    except ConfigurationError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
