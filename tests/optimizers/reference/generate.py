"""Run the reference packages and write what our rules are compared with.

In an environment with edgeopt, jax and the packages that the table of cases names, from the root of the repository::

    python -m tests.optimizers.reference.generate

The goldens say which versions they come from. apollo-torch, fira, galore-torch and timm may be installed without what
they depend on, except for transformers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np

from tests.optimizers.reference import runners
from tests.optimizers.reference.cases import CASES, PAIR, Case, key
from tests.optimizers.reference.runners import named

HERE = Path(__file__).parent
STEPS = 25, 200
# Of these only modules inside are used. Their own needs packages that are of no use here.
BARE = ("apollo_torch", "galore_torch", "timm", "timm.optim")

Array = np.ndarray[Any, Any]


def inputs(kind: str, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """A parameter and gradients, exact in float32.

    `wide`: sizes from 1e-9 to 10, so that the place of an eps matters, and zeros in a quarter of the first gradient.
    `even`: sizes from 0.1 to 10, for what depends on the condition of matrices.
    `late`: sizes like that, but the first gradient is zero.
    `rows`: sizes like that, but half of the rows are zero, and of every fifth step all.
    """
    rng = np.random.default_rng(5)
    smallest = -9 if kind == "wide" else -1
    grads = rng.normal(size=(max(STEPS), *shape)) * 10.0 ** rng.uniform(smallest, 1, (1, *shape))
    if kind == "wide":
        grads[0].reshape(-1)[::4] = 0.0
    if kind == "late":
        grads[0] = 0.0
    if kind == "rows":
        grads[rng.random(grads.shape[:2]) < 0.5] = 0.0
        grads[4::5] = 0.0
    return rng.normal(size=shape).astype(np.float32), grads.astype(np.float32)


def bare(name: str) -> None:
    """Register a package without running its `__init__`, so that its modules can be imported alone."""
    spec = importlib.util.find_spec(name)
    if spec is not None and name not in sys.modules:
        module = ModuleType(name)
        module.__path__ = list(spec.submodule_search_locations or ())
        sys.modules[name] = module


def trajectory(case: Case, start: Array, grads: Array) -> dict[str, list[Any]]:
    """The parameter after each of `STEPS`."""
    settings = {
        key: named(value) if isinstance(value, str) and value.startswith("torch.") else value
        for key, value in case.theirs.items()
    }
    make = named(f"{case.package.module}.{case.reference}")
    with contextlib.redirect_stdout(io.StringIO()):  # some of them greet
        steps = getattr(runners, case.run)(make, settings, start.astype(np.float64), grads.astype(np.float64))
        passed = list(steps)
    return {str(step): passed[step - 1].tolist() for step in STEPS}


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    for name in BARE:
        bare(name)
    runs = [(case, shape) for case in (*CASES, PAIR) for shape in case.shapes]
    drawn = {key(case, shape): inputs(case.inputs, shape) for case, shape in runs}
    parts: dict[str, Any] = {f"{name} start": start for name, (start, _) in drawn.items()}
    parts |= {f"{name} grads": grads for name, (_, grads) in drawn.items()}
    np.savez_compressed(HERE / "inputs.npz", **parts)
    for package in sorted({case.package.distribution for case, _ in runs}):
        goldens: dict[str, dict[str, Any]] = {}
        for case, shape in runs:
            if case.package.distribution == package:
                goldens.setdefault(case.name, {})[key(case, shape)] = trajectory(case, *drawn[key(case, shape)])
        lines = [f'"package": "{package}"', f'"version": "{version(package)}"', '"cases": {']
        rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(shapes)}" for name, shapes in goldens.items())
        document = "{" + ",\n".join(lines) + "\n" + rows + "}}\n"
        (HERE / f"{package}.json").write_text(document, encoding="utf-8")


if __name__ == "__main__":
    main()
