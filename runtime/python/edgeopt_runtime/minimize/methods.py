"""The methods by name, with their settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from edgeopt_runtime.batch import Batch
from edgeopt_runtime.engine import Engine
from edgeopt_runtime.errors import MinimizeError
from edgeopt_runtime.minimize.descent import MinimizeResult, descend
from edgeopt_runtime.minimize.lbfgs import LimitedMemory
from edgeopt_runtime.minimize.method import Method, Rule
from edgeopt_runtime.minimize.mezo import MeZO, walk
from edgeopt_runtime.minimize.newton_cg import TruncatedNewton
from edgeopt_runtime.minimize.objective import Objective, SessionObjective
from edgeopt_runtime.minimize.self_scaled import DenseInverse, Factors, al_baali, broyden, oren_luenberger, unscaled
from edgeopt_runtime.minimize.variance_reduced import SAGA, SVRG, Stochastic

__all__ = ["METHODS", "STOCHASTIC", "WITHOUT_GRADIENTS", "minimize"]

SCALINGS: dict[str | None, Factors] = {
    "oren-luenberger": oren_luenberger,
    "al-baali": al_baali,
    None: unscaled,
}


@dataclass(frozen=True)
class LBFGS(Method):
    """Limited-memory BFGS, step by step that of `torch.optim.LBFGS`, with the same names and, but for the line search,
    the same defaults; see `LimitedMemory`.

    Attributes:
        max_eval: None means 5/4 of ``max_iter``.
        line_search_fn: ``strong_wolfe``, or None for steps of length ``lr``.
        history_size: Number of pairs that are kept.
    """

    max_iter: int = 20
    tolerance_grad: float = 1e-7
    tolerance_change: float = 1e-9
    history_size: int = 100

    line_searches: ClassVar[tuple[str | None, ...]] = (None, "strong_wolfe")
    roundings: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("history_size", self.history_size, self.history_size >= 1, "at least 1")
        if self.max_eval is None:
            object.__setattr__(self, "max_eval", max(self.max_iter * 5 // 4, 1))

    def rule(self, objective: Objective) -> Rule:
        """An empty history."""
        return LimitedMemory(self.history_size)


@dataclass(frozen=True)
class NewtonCG(Method):
    """Newton's method with conjugate gradients; see `TruncatedNewton`. It needs the graph `hessian_vector`.

    Attributes:
        damping: Added to the diagonal of the Hessian.
        max_cg: Most Hessian-vector products for one direction; None means 20 for each trainable parameter.
    """

    damping: float = 0.0
    max_cg: int | None = None

    graphs: ClassVar[tuple[str, ...]] = ("accumulate", "hessian_vector")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("damping", self.damping, 0 <= self.damping < math.inf, "at least 0")
        self.require("max_cg", self.max_cg, self.max_cg is None or self.max_cg >= 1, "at least 1")

    def rule(self, objective: Objective) -> Rule:
        """Bound to the objective, whose Hessian it applies."""
        return TruncatedNewton(objective, self.damping, self.max_cg)


@dataclass(frozen=True)
class SSBFGS(Method):
    """Self-scaled BFGS with a dense matrix; see `DenseInverse`.

    Attributes:
        scaling: ``oren-luenberger``; ``al-baali``, which never scales up and is what the authors of arXiv 2405.04230
            advise; or None for plain BFGS.
        initial_scaling: Whether the first update sets the scale of the matrix.
        max_parameters: Most trainable parameters; 5000 make a matrix of 200 MB.
    """

    scaling: str | None = "oren-luenberger"
    initial_scaling: bool = True
    max_parameters: int = 5000

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("scaling", self.scaling, self.scaling in SCALINGS, f"one of {tuple(SCALINGS)}")

    def rule(self, objective: Objective) -> Rule:
        """From the unit matrix."""
        return DenseInverse(objective.size, SCALINGS[self.scaling], self.initial_scaling, self.max_parameters)


@dataclass(frozen=True)
class SSBroyden(Method):
    """Self-scaled Broyden with a dense matrix; see `broyden` and `DenseInverse`.

    Attributes:
        initial_scaling: Whether the first update sets the scale of the matrix.
        max_parameters: Most trainable parameters; 5000 make a matrix of 200 MB.
    """

    initial_scaling: bool = True
    max_parameters: int = 5000

    def rule(self, objective: Objective) -> Rule:
        """From the unit matrix."""
        return DenseInverse(objective.size, broyden, self.initial_scaling, self.max_parameters)


METHODS: dict[str, type[Method]] = {
    "lbfgs": LBFGS,
    "newton_cg": NewtonCG,
    "ssbfgs": SSBFGS,
    "ssbroyden": SSBroyden,
}

STOCHASTIC: dict[str, type[Stochastic]] = {"saga": SAGA, "svrg": SVRG}

WITHOUT_GRADIENTS: dict[str, type[MeZO]] = {"mezo": MeZO}


def minimize(
    engine: Engine, batches: Batch | Iterable[Batch], method: str, options: Mapping[str, Any]
) -> MinimizeResult:
    """Minimise the loss of a session; see `TrainingSession.minimize`."""
    settings = _settings(method, options)
    for graph in settings.graphs:
        engine.signature(graph)
    if isinstance(settings, MeZO):
        return walk(engine, batches, settings)
    # Trial points may lie where numbers overflow; their loss says so.
    with SessionObjective(engine, batches) as objective, np.errstate(over="ignore", invalid="ignore"):
        if isinstance(settings, Stochastic):
            return settings.run(objective)
        x, result = descend(objective, settings.rule(objective), settings)
        objective.settle(x)
    return MinimizeResult(
        **{**vars(result), "evaluations": objective.evaluations, "hessian_vector_products": objective.products}
    )


def _settings(method: str, options: Mapping[str, Any]) -> Method | Stochastic | MeZO:
    methods: dict[str, type[Method] | type[Stochastic] | type[MeZO]] = {**METHODS, **STOCHASTIC, **WITHOUT_GRADIENTS}
    if method not in methods:
        raise MinimizeError(f"There is no method {method!r}; choose from {', '.join(methods)}.")
    known = {field.name for field in fields(methods[method])}
    unknown = sorted(options.keys() - known)
    if unknown:
        raise MinimizeError(f"{method} has no option {', '.join(unknown)}; it has {', '.join(sorted(known))}.")
    return methods[method](**options)
