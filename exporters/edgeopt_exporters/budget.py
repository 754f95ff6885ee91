"""Settings with which a training step fits into a budget of memory, the quickest that do."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from edgeopt.bundle import Bundle
from edgeopt.errors import ConfigurationError, MemoryBudgetError, ParameterPatternError
from edgeopt.memory import Estimate
from edgeopt.training import ForwardModel
from edgeopt.training.plan import select_trainable
from edgeopt_runtime.manifest import Decision

__all__ = ["Budget", "fit"]

MIB = 1 << 20
BATCH = "batch"

Settings = Mapping[str, Any]
Compose = Callable[[ForwardModel, Settings], Bundle]


@dataclass(frozen=True)
class Budget:
    """What a session may take.

    Attributes:
        mib: The most that a process may grow by, from the imported runtime on.
        sizes: Of the symbolic dimensions in one step; those of the examples by default.
        may_freeze: Whether parameters may be frozen, from the front.
    """

    mib: float
    sizes: Mapping[str, int] | None = None
    may_freeze: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.mib, bool) or not isinstance(self.mib, (int, float)) or not self.mib > 0:
            raise ConfigurationError(f"memory_budget_mb must be a number above 0, got {self.mib!r}.")


@dataclass(frozen=True)
class _Choice:
    """A way to train.

    Attributes:
        bundle: The graphs.
        settings: What they were composed with.
        batch: Examples in one run, if that is a symbolic dimension.
        nbytes: What it takes.
        parts: The same in words.
    """

    bundle: Bundle
    settings: Settings
    batch: int | None
    nbytes: int
    parts: str


def fit(
    compose: Compose, forward: ForwardModel, settings: Settings, budget: Budget, sizes: Mapping[str, int]
) -> tuple[Bundle, Settings]:
    """Compose the step so that it fits: as it is asked for, with recomputation, in microbatches; with less to train.

    Each is tried only if those before it do not fit, as each costs more time or changes more.

    Args:
        compose: Makes a bundle.
        forward: The model.
        settings: What is asked for.
        budget: How much there is.
        sizes: Of the symbolic dimensions in the examples.

    Returns:
        The bundle, with a decision that says what was chosen, and the settings that it was composed with.

    Raises:
        MemoryBudgetError: Nothing fits.
    """
    sizes = dict(sizes if budget.sizes is None else budget.sizes)
    # They are read several times.
    several = {name: settings[name] for name in ("trainable", "recompute") if not isinstance(settings[name], str)}
    settings = {**settings, **{name: value if value is None else tuple(value) for name, value in several.items()}}
    limit = budget.mib * MIB
    leanest: _Choice | None = None
    for choice in _choices(compose, forward, settings, sizes, budget.may_freeze):
        if choice.nbytes <= limit:
            return _decided(choice, settings, sizes, budget), choice.settings
        if leanest is None or choice.nbytes < leanest.nbytes:
            leanest = choice
    if leanest is None:
        raise MemoryBudgetError("No parameter can be trained at all.", 0)
    needed = -(-leanest.nbytes // MIB)
    how = _words(leanest, settings, sizes)
    raise MemoryBudgetError(
        f"The training step does not fit into {budget.mib:g} MiB. The leanest choice ({how}) needs {needed} MiB: "
        f"{leanest.parts}. Train fewer parameters"
        + ("" if budget.may_freeze else " (freeze_to_fit=True chooses them)")
        + ', keep the optimizer\'s state in fewer bits (AdamW(..., state="int8")) or take one without any (SGD), or '
        "take a smaller model.",
        needed,
    )


def _choices(
    compose: Compose, forward: ForwardModel, settings: Settings, sizes: Mapping[str, int], may_freeze: bool
) -> Iterator[_Choice]:
    """Ways to train, the quickest first."""
    yield from _splits(compose, forward, settings, sizes)
    names = list(select_trainable(forward, settings["trainable"]))
    kept = len(names) // 2
    while may_freeze and kept:
        fewer = {**settings, "trainable": tuple(glob.escape(name) for name in names[-kept:])}
        try:
            yield from _splits(compose, forward, fewer, sizes)
        except ParameterPatternError:
            # A group of parameters with settings of its own has none left.
            return
        kept //= 2


def _splits(compose: Compose, forward: ForwardModel, settings: Settings, sizes: Mapping[str, int]) -> Iterator[_Choice]:
    variants = [settings] if settings["recompute"] else [settings, {**settings, "recompute": "auto"}]
    bundles: dict[int, Bundle] = {}
    whole = sizes.get(BATCH)
    batch = whole
    while True:
        for index, variant in enumerate(variants):
            if index not in bundles:
                bundles[index] = compose(forward, variant)
            bundle = bundles[index]
            if batch == whole:
                found = [bundle.estimate(**sizes)]
            else:
                # Both graphs are in memory, each with an arena of its own.
                found = [bundle.estimate("accumulate", **{**sizes, BATCH: batch or 1}), bundle.estimate("apply")]
            yield _Choice(bundle, variant, batch, _needed(found), _parts(found))
        if batch is None or batch == 1:
            return
        batch = -(-batch // 2)


def _needed(found: list[Estimate]) -> int:
    return sum(_sums(found).values())


def _sums(found: list[Estimate]) -> dict[str, int]:
    each = ("runtime", "written", "activations", "arena")
    return {
        "state": max(one.state for one in found),
        **{part: sum(getattr(one, part) for one in found) for part in each},
    }


def _parts(found: list[Estimate]) -> str:
    return ", ".join(f"{part} {nbytes / MIB:.0f}" for part, nbytes in _sums(found).items())


def _words(choice: _Choice, asked: Settings, sizes: Mapping[str, int]) -> str:
    words = []
    if choice.settings["trainable"] != asked["trainable"]:
        words.append(f"the last {len(choice.settings['trainable'])} parameters train")
    if choice.settings["recompute"] != asked["recompute"]:
        words.append('recompute="auto"')
    whole = sizes.get(BATCH)
    if choice.batch != whole:
        words.append(f"microbatches of {choice.batch} of {whole} examples")
    return ", ".join(words) or "as it is"


def _decided(choice: _Choice, asked: Settings, sizes: Mapping[str, int], budget: Budget) -> Bundle:
    how = f"the step is to take {-(-choice.nbytes // MIB)} of {budget.mib:g} MiB: {_words(choice, asked, sizes)}"
    if choice.batch != sizes.get(BATCH):
        how += "; call accumulate with each microbatch, then apply (a BatchNorm sees the microbatches)"
    changed = choice.settings != asked or choice.batch != sizes.get(BATCH)
    manifest = choice.bundle.manifest
    decision = Decision("memory", "step", how, warning=changed and choice.batch != sizes.get(BATCH))
    return replace(choice.bundle, manifest=replace(manifest, decisions=(*manifest.decisions, decision)))
