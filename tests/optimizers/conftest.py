from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from edgeopt.optimizers import Optimizer

NumpyArray = np.ndarray[Any, Any]
Result = tuple[NumpyArray, dict[str, NumpyArray]]


@pytest.fixture(scope="session")
def train() -> Callable[..., Result]:
    """Run an optimizer on one parameter, as the exported graph would, and return the parameter and its state."""

    def run(
        optimizer: Optimizer,
        xp: Any,
        start: NumpyArray,
        gradient: Callable[[Any, int], Any],
        steps: int,
        hyper: Mapping[str, float] | None = None,
    ) -> Result:
        def scalars(numbers: Mapping[str, float]) -> dict[str, Any]:
            return {name: xp.asarray(value, dtype=xp.float64) for name, value in numbers.items()}

        own = scalars({**optimizer.hyperparameters(), **(hyper or {})})
        of_schedule = scalars(optimizer.schedule.hyperparameters())
        param = xp.asarray(start)
        state = {slot: xp.asarray(optimizer.init(slot, start)) for slot in optimizer.slots()}
        for done in range(steps):
            lr = optimizer.schedule(xp, of_schedule, xp.asarray(done, dtype=xp.int64))
            grad = xp.asarray(gradient(param, done))
            step = xp.asarray(done + 1, dtype=xp.int64)
            param, state = optimizer.update(xp, param, grad, state, {**own, "lr": lr}, step)
        return np.asarray(param), {slot: np.asarray(value) for slot, value in state.items()}

    return run


@pytest.fixture(scope="session")
def train_torch() -> Callable[..., Result]:
    """Run a torch optimizer on one parameter with given gradients."""

    def run(
        optimizer: type[torch.optim.Optimizer], start: NumpyArray, grads: Sequence[NumpyArray], **settings: Any
    ) -> Result:
        param = torch.nn.Parameter(torch.tensor(start))
        rule = optimizer([param], **settings)  # type: ignore[call-arg] # the base class has no learning rate
        for grad in grads:
            param.grad = torch.tensor(grad)
            rule.step()
        state = rule.state[param]
        return param.detach().numpy(), {name: value.numpy() for name, value in state.items() if value is not None}

    return run
